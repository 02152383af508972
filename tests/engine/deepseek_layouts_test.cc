// DeepSeek gives the same bits for any chunk length and number of stages, dense and sparse, with
// one form of attention for prefill and decode.
#include <gtest/gtest.h>

#include "tests/engine/dummy_models.h"
#include "tests/engine/same_bits.h"
#include "tests/support/effort.h"

namespace longspan::testing {
namespace {

constexpr int kLayers = 4;
constexpr int64_t kLength = Effort(530, 150);

struct Arithmetic {
  const char* name;
  const char* backend;
  const char* dtype;
};
constexpr Arithmetic kArithmetics[] = {
    {"reference", "reference", "f32"}, {"cpu_f32", "cpu", "f32"}, {"cpu_bf16", "cpu", "bf16"}};

struct Family {
  const char* name;
  int top_k;
};
constexpr Family kFamilies[] = {{"v3", 0}, {"v32", 48}};

class DeepseekLayoutsTest : public ::testing::TestWithParam<std::tuple<Arithmetic, Family>> {
 protected:
  DeepseekLayoutsTest()
      : folder_(std::string("layouts_") + std::get<1>(GetParam()).name,
                DummyDeepseek{.heads = 2, .layers = kLayers, .top_k = std::get<1>(GetParam()).top_k}
                    .Config()) {
    layout_.backend = std::get<0>(GetParam()).backend;
    layout_.dtype = std::get<0>(GetParam()).dtype;
    layout_.load_format = "dummy";
    layout_.deterministic = true;
  }

  std::unique_ptr<engine::Engine> StartWith(int stages, int64_t chunk, int threads) {
    layout_.stages = stages;
    layout_.chunk_tokens = chunk;
    layout_.threads = threads;
    return Start(folder_.path(), layout_);
  }

  ConfigFolder folder_;
  Layout layout_;
};

TEST_P(DeepseekLayoutsTest, ScoresAreTheSameBits) {
  const auto ids = RandomIds(kLength, kDummyVocab, 11);
  const auto positions = SomePositions(kLength);
  const Scores want = Score(*StartWith(1, kLength, 2), ids, positions);
  for (int stages = 1; stages <= kLayers; ++stages)
    for (const int64_t chunk : {1, 7, 64, 100, 512})
      ExpectSameBits(Score(*StartWith(stages, chunk, stages == 1 ? 2 : 1), ids, positions), want,
                     layout_.ToString());
}

TEST_P(DeepseekLayoutsTest, DecodedTokensScoreLikeAPrompt) {
  const auto prompt = RandomIds(60, kDummyVocab, 12);
  const auto generated = Generate(*StartWith(2, 100, 1),
                                  {.prompt = prompt, .max_tokens = 20, .ignore_end_tokens = true});
  auto ids = prompt;
  ids.insert(ids.end(), generated.ids.begin(), generated.ids.end());
  std::vector<int64_t> positions;
  for (size_t i = prompt.size(); i < ids.size(); ++i)
    positions.push_back(static_cast<int64_t>(i) - 1);
  const Scores scores = Score(*StartWith(1, 100, 1), ids, positions);
  for (size_t i = 0; i < generated.ids.size(); ++i)
    EXPECT_EQ(generated.logprobs[i], static_cast<float>(scores.next_logprobs[i])) << "token " << i;
}

INSTANTIATE_TEST_SUITE_P(, DeepseekLayoutsTest,
                         ::testing::Combine(::testing::ValuesIn(kArithmetics),
                                            ::testing::ValuesIn(kFamilies)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param).name) + "_" +
                                  std::get<1>(param.param).name;
                         });

}  // namespace
}  // namespace longspan::testing
