#include "runtime/kv_cache.h"

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"

namespace longspan::runtime {
namespace {

using tensor::DType;

const spec::ModelSpec kModel = {
    .attention = {.heads = 4, .kv_heads = 2, .head_dim = 8},
    .feed_forward = std::vector(3, spec::FeedForwardKind::kDense),
};

class KvCacheTest : public ::testing::TestWithParam<DType> {
 protected:
  const ops::Backend& backend_ = backend::reference::ReferenceBackend();
};

TEST_P(KvCacheTest, SyntheticNumbersAreEverywhereAndSmall) {
  const auto queue = backend_.CreateQueue({}).value();
  const std::vector<plan::LayerRange> ranges = {{1, 3}};
  auto cache =
      KvCache::Allocate(backend_, kModel, ranges, {.pages = 5, .page_size = 4, .dtype = GetParam()})
          .value();
  ASSERT_TRUE(cache.FillSynthetic(backend_, *queue).ok());
  ASSERT_EQ(cache.Layers(0).size(), 2U);
  const tensor::View values = cache.Layers(0)[1].planes[kv::kValuePlane];
  int64_t zeros = 0;
  for (int64_t i = 0; i < values.elements(); ++i) {
    const float value = GetParam() == DType::kF32 ? values.data<float>()[i]
                                                  : tensor::ToFloat(values.data<tensor::Bf16>()[i]);
    EXPECT_LE(std::abs(value), 1);
    if (value == 0) ++zeros;
  }
  EXPECT_LT(zeros, values.elements() / 100);
}

INSTANTIATE_TEST_SUITE_P(Types, KvCacheTest, ::testing::Values(DType::kF32, DType::kBf16),
                         [](const auto& test) {
                           return std::string(tensor::DTypeName(test.param));
                         });

}  // namespace
}  // namespace longspan::runtime
