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

TEST_P(KvCacheTest, LatentAttentionHasItsPlanes) {
  spec::ModelSpec model = kModel;
  model.latent_attention = {.heads = 4, .latent_rank = 40, .nope_dim = 8, .rope_dim = 6};
  model.indexer = {.heads = 2, .head_dim = 12, .rope_dim = 6, .top_k = 3};
  const std::vector<plan::LayerRange> ranges = {{0, 1}, {2, 3}};
  auto cache =
      KvCache::Allocate(backend_, model, ranges, {.pages = 5, .page_size = 4, .dtype = GetParam()})
          .value();
  const auto queue = backend_.CreateQueue({}).value();
  ASSERT_TRUE(cache.FillSynthetic(backend_, *queue).ok());
  const model::LayerCache& layer = cache.Layers(1)[0];
  int64_t bytes = 0;
  for (const auto& [plane, dim] :
       {std::pair(kv::kLatentPlane, 40), {kv::kRopeKeyPlane, 6}, {kv::kIndexKeyPlane, 12}}) {
    const tensor::View view = layer.planes[plane];
    EXPECT_EQ(view.size(0), 5);
    EXPECT_EQ(view.size(1), 1);
    EXPECT_EQ(view.size(2), 4);
    EXPECT_EQ(view.size(3), dim);
    bytes += view.bytes();
  }
  EXPECT_EQ(2 * bytes, 5 * KvCache::BytesPerPage(model, ranges, 4, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, KvCacheTest, ::testing::Values(DType::kF32, DType::kBf16),
                         [](const auto& test) {
                           return std::string(tensor::DTypeName(test.param));
                         });

}  // namespace
}  // namespace longspan::runtime
