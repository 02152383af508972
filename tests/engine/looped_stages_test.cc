// Looped stages do not change a bit: models of 8 and 9 layers over every shape of pipeline that
// they are cut into, prompts in chunks of several sizes, scored and continued.
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace longspan::testing {
namespace {

constexpr int kVocab = 67;

constexpr const char* kQwen3Moe =
    R"({{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 67, "hidden_size": 24,
        "intermediate_size": 32, "moe_intermediate_size": 12, "num_hidden_layers": {}, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2,
        "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1], "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false}})";

constexpr const char* kDeepseek =
    R"({{"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 67, "hidden_size": 24,
        "intermediate_size": 32, "moe_intermediate_size": 12, "num_hidden_layers": {}, "num_attention_heads": 2,
        "num_key_value_heads": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": true,
        "routed_scaling_factor": 1.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "kv_lora_rank": 16,
        "q_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}})";

struct Case {
  const char* name;
  const char* config;
  int layers;
};

class LoopedStagesTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("longspan_looped_{}", GetParam().name);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json")
        << fmt::format(fmt::runtime(GetParam().config), GetParam().layers);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

Layout LayoutOf(int stages, int virtual_stages, int64_t chunk_tokens) {
  return {.stages = stages,
          .virtual_stages = virtual_stages,
          .chunk_tokens = chunk_tokens,
          .page_size = 8,
          .load_format = "dummy",
          .max_total_tokens = 2048,
          .max_running = 4};
}

// More than run at once, of lengths that end in the middle of chunks, groups and pages; some sample
// at random, some want a single token.
std::vector<engine::Request> Requests() {
  std::vector<engine::Request> requests;
  for (int i = 0; i < 7; ++i)
    requests.push_back({.prompt = RandomIds(1 + 11 * i, kVocab, static_cast<uint64_t>(i)),
                        .max_tokens = 1 + (5 * i) % 12,
                        .sampling = {.temperature = i % 2 == 0 ? 0.0 : 0.8,
                                     .seed = static_cast<uint64_t>(i),
                                     .repetition_penalty = i == 3 ? 1.3 : 1.0},
                        .ignore_end_tokens = true});
  return requests;
}

struct Outputs {
  Scores scores;
  Generated alone;
  std::vector<Generated> together;
};

Outputs Compute(const std::filesystem::path& model, const Layout& layout) {
  const auto engine = Start(model, layout);
  Outputs outputs;
  outputs.together = Generate(*engine, Requests());
  outputs.alone = Generate(
      *engine, {.prompt = RandomIds(21, kVocab, 40), .max_tokens = 9, .ignore_end_tokens = true});
  outputs.scores = Score(*engine, RandomIds(70, kVocab, 41), {0, 6, 7, 31, 32, 33, 69});
  EXPECT_EQ(engine->pages().in_use(), 0) << layout.ToString();
  return outputs;
}

void ExpectSame(const Generated& got, const Generated& want, const std::string& what) {
  EXPECT_EQ(got.ids, want.ids) << what;
  EXPECT_EQ(got.logprobs, want.logprobs) << what;
  EXPECT_EQ(got.reason, want.reason) << what;
}

TEST_P(LoopedStagesTest, GiveOneRanksBits) {
  const Outputs want = Compute(folder_, LayoutOf(1, 1, 512));
  ASSERT_EQ(want.together.size(), 7u);
  ASSERT_EQ(want.scores.hidden.size(), static_cast<size_t>(GetParam().layers) + 1);
  for (int stages = 1; stages <= 4; ++stages) {
    for (const int virtual_stages : {1, 2}) {
      for (const int64_t chunk : {3, 16, 100}) {
        const Layout layout = LayoutOf(stages, virtual_stages, chunk);
        const Outputs got = Compute(folder_, layout);
        for (size_t i = 0; i < want.together.size(); ++i)
          ExpectSame(got.together[i], want.together[i], layout.ToString());
        ExpectSame(got.alone, want.alone, layout.ToString());
        EXPECT_EQ(got.scores.logits, want.scores.logits) << layout.ToString();
        EXPECT_EQ(got.scores.hidden, want.scores.hidden) << layout.ToString();
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LoopedStagesTest,
                         ::testing::Values(Case{"qwen3_moe_8", kQwen3Moe, 8},
                                           Case{"qwen3_moe_9", kQwen3Moe, 9},
                                           Case{"deepseek_9", kDeepseek, 9}),
                         [](const auto& param) { return std::string(param.param.name); });

// Every stage reports once per plan, with the times of all its loops.
TEST(LoopedTimingTest, IsOfAllLoopsTogether) {
  const auto engine =
      Start(ModelFolder("tiny-qwen3-moe"), {.stages = 2, .virtual_stages = 2, .chunk_tokens = 8});
  std::vector<engine::StepRecord> records;
  engine->set_step_observer([&](const engine::StepRecord& record) { records.push_back(record); });
  Generate(*engine, {.prompt = RandomIds(20, 1024, 1), .max_tokens = 2});
  ASSERT_GE(records.size(), 3u);
  for (const engine::StepRecord& record : records) {
    ASSERT_EQ(record.stages.size(), 2u);
    for (const plan::StageTiming& timing : record.stages) {
      EXPECT_GT(timing.kernels, 0);
      EXPECT_LE(timing.kernels + timing.wait + timing.transfer, timing.end - timing.start);
    }
    // The first stage's second loop is behind the last stage's first.
    EXPECT_LT(record.stages[0].start, record.stages[1].start + record.stages[1].wait);
    EXPECT_GT(record.stages[0].end, record.stages[1].start);
    EXPECT_LT(record.stages[0].end, record.stages[1].end);
  }
}

}  // namespace
}  // namespace longspan::testing
