// On a machine with a GPU: memory, copies and weights. Elsewhere: that it says so. The ops have the
// suite of tests/ops.
#include "backend/cuda/cuda_backend.h"

#include <array>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/cuda_queue.h"
#include "backend/cuda/packed_weight.h"
#include "checkpoint/dummy.h"

namespace longspan::backend::cuda {
namespace {

using tensor::Bf16;
using tensor::DType;
using ::testing::HasSubstr;

class CudaBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = CudaBackend();
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    backend_ = *found;
    queue_ = std::move(backend_->CreateQueue({})).value();
  }

  std::vector<std::byte> WeightBytes(const ops::PackedWeight& weight) {
    std::vector<std::byte> bytes(static_cast<size_t>(weight.bytes()));
    const base::Status status =
        static_cast<CudaQueue&>(*queue_).Download(AsCuda(weight).data(), bytes);
    EXPECT_TRUE(status.ok()) << status.message();
    return bytes;
  }

  const ops::Backend* backend_ = nullptr;
  std::unique_ptr<tensor::Queue> queue_;
};

TEST(CudaBackendRefusalTest, WithoutAGpuItSaysSo) {
  const auto found = CudaBackend();
  if (found.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(found.status().message(), HasSubstr("--backend cpu"));
}

TEST_F(CudaBackendTest, RefusesADeviceThatIsNotThere) {
  const auto queue = backend_->CreateQueue({.device = 1000});
  ASSERT_FALSE(queue.ok());
  EXPECT_THAT(queue.status().message(), HasSubstr("GPU 1000"));
}

TEST_F(CudaBackendTest, MoreMemoryThanThereIsIsRefusedWithNumbersAndHarmsNothing) {
  const auto buffer = backend_->Allocate(int64_t{1} << 42);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), base::StatusCode::kResourceExhausted);
  EXPECT_THAT(buffer.status().message(), HasSubstr("4096.00 GiB"));
  EXPECT_TRUE(backend_->Allocate(1024).ok());
  EXPECT_TRUE(queue_->Synchronize().ok());
}

TEST_F(CudaBackendTest, MemoryBeginsAsZeros) {
  auto buffer = std::move(backend_->Allocate(1000)).value();
  std::vector<std::byte> bytes(1000, std::byte{1});
  ASSERT_TRUE(backend_->Download(*queue_, buffer.AsView(DType::kU8, {1000}), bytes).ok());
  EXPECT_THAT(bytes, ::testing::Each(std::byte{0}));
}

// Through both halves of the ring several times, in pieces of odd sizes; the source is overwritten
// as soon as it may be.
TEST_F(CudaBackendTest, UploadsArriveInOrderAndWhole) {
  constexpr int64_t kCount = 9'000'001;
  auto buffer = std::move(backend_->Allocate(4 * kCount)).value();
  std::vector<int32_t> source(kCount);
  for (const int64_t piece : {int64_t{1}, int64_t{1000}, int64_t{300'001}, kCount}) {
    for (int64_t begin = 0; begin < kCount; begin += piece) {
      if (piece == 1 && begin == 5000) break;
      const int64_t count = std::min(piece, kCount - begin);
      std::iota(source.begin(), source.begin() + count, static_cast<int32_t>(begin * 7 + piece));
      ASSERT_TRUE(backend_
                      ->Upload(*queue_, std::as_bytes(std::span(source).first(count)),
                               buffer.ViewAt(4 * begin, DType::kI32, {count}))
                      .ok());
      std::fill_n(source.begin(), count, -1);
    }
    std::vector<int32_t> back(kCount);
    ASSERT_TRUE(backend_
                    ->Download(*queue_, buffer.AsView(DType::kI32, {kCount}),
                               std::as_writable_bytes(std::span(back)))
                    .ok());
    const int64_t checked = piece == 1 ? 5000 : kCount;
    for (int64_t i = 0; i < checked; ++i)
      ASSERT_EQ(back[i], static_cast<int32_t>(i / piece * piece * 7 + piece + i % piece)) << i;
  }
}

// The same bytes as from the host, for shapes whose parts do not begin at a multiple of a mix.
TEST_F(CudaBackendTest, DummyWeightsAreTheHosts) {
  const auto source = checkpoint::MakeDummySource(7);
  for (const DType compute : {DType::kBf16, DType::kF32}) {
    for (const int64_t columns : {int64_t{64}, int64_t{333}, int64_t{4096}}) {
      const std::vector<std::pair<std::string, int64_t>> names = {
          {"model.layers.0.self_attn.q_proj.weight", 129},
          {"model.layers.0.self_attn.k_proj.weight", 7},
          {"model.embed_tokens.weight", 1000}};
      std::vector<tensor::ConstView> parts;
      std::vector<ops::GeneratedMatrix> generated;
      for (const auto& [name, rows] : names) {
        const std::array<int64_t, 2> shape = {rows, columns};
        parts.push_back(source->Read(name, shape).value());
        const auto counter = source->Counter(name, shape).value();
        generated.push_back({rows, counter.key, counter.table});
      }
      const auto read = std::move(backend_->Pack({.parts = parts, .compute = compute})).value();
      const auto made = std::move(backend_->Generate(
                                      {.parts = generated, .columns = columns, .compute = compute}))
                            .value();
      EXPECT_EQ(WeightBytes(*made), WeightBytes(*read));
      for (const auto& [name, rows] : names) source->Release(name);
    }
  }
}

// What fails on the device comes out of the queue as a sentence, from then on.
TEST_F(CudaBackendTest, AnErrorIsKept) {
  static_cast<CudaQueue&>(*queue_).Note(cudaErrorInvalidValue, "rms_norm");
  for (int i = 0; i < 2; ++i) {
    const base::Status status = queue_->Synchronize();
    ASSERT_FALSE(status.ok());
    // A code for which the engine starts the ranks again.
    EXPECT_EQ(status.code(), base::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("rms_norm"));
  }
}

}  // namespace
}  // namespace longspan::backend::cuda
