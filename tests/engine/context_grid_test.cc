// Every layout of stages and context-parallel ranks gives the bits of one rank.
#include <algorithm>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/closeness.h"
#include "tests/engine/dummy_models.h"
#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

// Model, stages, chunk.
using Layouts = std::tuple<const char*, int, int64_t>;

std::string CaseName(const ::testing::TestParamInfo<Layouts>& param) {
  const auto& [model, stages, chunk] = param.param;
  std::string name = fmt::format("{}_pp{}_chunk{}", model, stages, chunk);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class ContextGridTest : public ::testing::TestWithParam<Layouts> {};

INSTANTIATE_TEST_SUITE_P(
    Models, ContextGridTest,
    ::testing::Combine(::testing::Values("rand-llama", "rand-llama31", "rand-qwen2", "rand-qwen3",
                                         "rand-deepseek-v32", "tiny-qwen3-moe", "tiny-deepseek-v3",
                                         "tiny-deepseek-v32"),
                       ::testing::Values(1, 2, 3), ::testing::Values<int64_t>(1, 7, 64, 100, 333)),
    CaseName);

// As many stages as these models have layers.
INSTANTIATE_TEST_SUITE_P(FourStages, ContextGridTest,
                         ::testing::Combine(::testing::Values("rand-deepseek-v32", "tiny-qwen3-moe",
                                                              "tiny-deepseek-v3",
                                                              "tiny-deepseek-v32"),
                                            ::testing::Values(4),
                                            ::testing::Values<int64_t>(7, 100)),
                         CaseName);

TEST_P(ContextGridTest, GivesTheBitsOfOneRank) {
  const auto& [name, stages, chunk] = GetParam();
  if (IsFixture(name)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(name);
  const int vocab = std::string(name).starts_with("tiny-") ? 1024 : 320;
  const auto one = Start(model, {.dtype = "f32", .chunk_tokens = 333});
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (const char* split : {"interleave", "zigzag"}) {
      const Layout layout = {.dtype = "f32",
                             .stages = stages,
                             .context_ranks = ranks,
                             .token_split = split,
                             .chunk_tokens = chunk};
      const auto several = Start(model, layout);
      for (const int64_t length : {1, 2, 3, 17, 333}) {
        const auto ids = RandomIds(length, vocab, 3);
        const auto positions = SomePositions(length);
        ExpectSameBits(Score(*several, ids, positions), Score(*one, ids, positions),
                       fmt::format("{} length {}", layout.ToString(), length));
      }
    }
  }
}

// Small models that are nothing but a shape, of the architectures without a trained one.
std::string DenseConfig(const char* architecture) {
  return fmt::format(
      R"({{"architectures": ["{}"], "vocab_size": 131, "hidden_size": 64, "intermediate_size": 96,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 16, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
          "rope_theta": 10000.0}})",
      architecture);
}

// A prompt of 4,097 tokens in chunks that the ranks divide, replicated and divided caches.
void ExpectLongPromptsAreAsOnOneRank(const std::filesystem::path& model, Layout layout, int vocab) {
  layout.backend = "cpu";
  layout.dtype = "f32";
  // Latent attention has one form then, however the chunks are cut.
  layout.deterministic = true;
  layout.chunk_tokens = 2048;
  const auto ids = RandomIds(4097, vocab, 5);
  const auto positions = SomePositions(4097);
  const Scores want = Score(*Start(model, layout), ids, positions);
  layout.stages = 2;
  layout.chunk_tokens = 500;
  layout.context_ranks = 2;
  for (const char* split : {"interleave", "zigzag"}) {
    layout.token_split = split;
    ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
  }
  layout.kv_placement = "sharded";
  EXPECT_LE(LargestDifference(Score(*Start(model, layout), ids, positions), want), 1e-5)
      << layout.ToString();
}

class LongContextParallelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LongContextParallelTest, OfTrainedModelsGivesTheResultsOfOneRank) {
  if (IsFixture(GetParam())) LONGSPAN_REQUIRE_FIXTURES();
  ExpectLongPromptsAreAsOnOneRank(ModelFolder(GetParam()), {}, 1024);
}

INSTANTIATE_TEST_SUITE_P(Models, LongContextParallelTest,
                         ::testing::Values("tiny-qwen3-moe", "tiny-deepseek-v3",
                                           "tiny-deepseek-v32"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class LongDenseTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LongDenseTest, GivesTheResultsOfOneRank) {
  const ConfigFolder folder(GetParam(), DenseConfig(GetParam()));
  ExpectLongPromptsAreAsOnOneRank(folder.path(), {.load_format = "dummy"}, 131);
}

INSTANTIATE_TEST_SUITE_P(Architectures, LongDenseTest,
                         ::testing::Values("LlamaForCausalLM", "Qwen2ForCausalLM",
                                           "Qwen3ForCausalLM"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace longspan::testing
