// Shapes that no shipped checkpoint has, with random weights: the fast backend against the
// reference.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/dummy_models.h"
#include "tests/engine/golden.h"

namespace longspan::testing {
namespace {

struct OddShape {
  const char* name;
  const char* config;
};

const OddShape kShapes[] = {
    {"moe_and_dense",
     R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 131, "hidden_size": 72, "intermediate_size": 100,
         "moe_intermediate_size": 36, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 3,
         "head_dim": 20, "num_experts": 7, "num_experts_per_tok": 3, "norm_topk_prob": false,
         "decoder_sparse_step": 2, "mlp_only_layers": [3], "max_position_embeddings": 700, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "tie_word_embeddings": true})"},
    {"one_head",
     R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 33, "hidden_size": 18, "intermediate_size": 34,
         "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 18, "max_position_embeddings": 700,
         "rms_norm_eps": 1e-5, "rope_theta": 500.0, "attention_bias": true, "mlp_bias": true})"},
    {"wide_groups",
     R"({"architectures": ["Qwen2ForCausalLM"], "vocab_size": 65, "hidden_size": 80, "intermediate_size": 48,
         "num_hidden_layers": 9, "num_attention_heads": 10, "num_key_value_heads": 1, "head_dim": 8,
         "max_position_embeddings": 700, "rms_norm_eps": 1e-6, "rope_theta": 10000.0})"},
};

double WorstDifference(const Scores& got, const Scores& want) {
  double difference = 0;
  double scale = 0;
  for (size_t row = 0; row < want.logits.size(); ++row) {
    for (size_t i = 0; i < want.logits[row].size(); ++i) {
      difference = std::max(difference, std::abs(double{got.logits[row][i]} - want.logits[row][i]));
      scale = std::max(scale, std::abs(double{want.logits[row][i]}));
    }
  }
  return difference / scale;
}

class OddShapesTest : public ::testing::TestWithParam<OddShape> {};

TEST_P(OddShapesTest, TheFastBackendIsNearTheReference) {
  const ConfigFolder folder(GetParam().name, GetParam().config);
  for (const int64_t length : {1, 2, 63, 65, 333}) {
    const auto ids = RandomIds(length, 33, length);
    const std::vector<int64_t> positions = {length - 1};
    const Scores want = Score(*Start(folder.path(), {.load_format = "dummy"}), ids, positions);
    for (const int stages : {1, 3}) {
      if (stages > 1 && std::string(GetParam().name) == "one_head") continue;
      const Layout layout{.backend = "cpu",
                          .dtype = "f32",
                          .stages = stages,
                          .chunk_tokens = 50,
                          .threads = 2,
                          .page_size = 16,
                          .load_format = "dummy"};
      EXPECT_LE(WorstDifference(Score(*Start(folder.path(), layout), ids, positions), want), 1e-4)
          << length << ' ' << layout.ToString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, OddShapesTest, ::testing::ValuesIn(kShapes),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace longspan::testing
