// DeepSeek with odd sizes and dummy weights: prompts around the length at which attention becomes
// sparse.
#include "tests/engine/odd_deepseek.h"

namespace longspan::testing {
namespace {

constexpr int kTopK = 32;

const OddDeepseek kDenseShapes[] = {
    {"v3_six_heads", {.heads = 6}},
    {"v3_twelve_heads_no_query_rank", {.heads = 12, .query_rank = 0}},
    {"v3_one_layer_of_experts", {.layers = 1, .query_rank = 0, .dense_layers = 0}},
    {"v3_nine_layers", {.layers = 9, .dense_layers = 3}},
};
const OddDeepseek kSparseShapes[] = {
    {"v32_six_heads", {.heads = 6, .top_k = kTopK}},
    {"v32_twelve_heads", {.heads = 12, .top_k = kTopK}},
    {"v32_one_layer", {.layers = 1, .top_k = kTopK, .dense_layers = 0}},
    {"v32_nine_layers", {.layers = 9, .top_k = kTopK, .dense_layers = 3}},
    {"v32_selects_one", {.top_k = 1}},
};

constexpr int64_t kLengths[] = {1, 2, kTopK - 1, kTopK, kTopK + 1, 2 * kTopK + 1, 333};

class OddDeepseekTest : public ::testing::TestWithParam<OddDeepseek> {};

TEST_P(OddDeepseekTest, TheFastBackendIsNearTheReference) {
  const auto& [name, model] = GetParam();
  const ConfigFolder folder(name, model.Config());
  const auto reference = Start(folder.path(), {.threads = 2, .load_format = "dummy"});
  const Layout layout{.backend = "cpu",
                      .dtype = "f32",
                      .stages = std::min(model.layers, 3),
                      .chunk_tokens = 25,
                      .page_size = 16,
                      .load_format = "dummy"};
  const auto engine = Start(folder.path(), layout);
  for (const int64_t length : kLengths) {
    const auto ids = OddIds(length);
    const GoldenCase golden = AsGolden(ids, Score(*reference, ids, AllPositions(length)));
    ExpectNear(Score(*engine, ids, golden.positions), golden, layout.ToString());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, OddDeepseekTest, ::testing::ValuesIn(kDenseShapes),
                         [](const auto& param) { return std::string(param.param.name); });

class OddSparseDeepseekTest : public ::testing::TestWithParam<OddDeepseek> {};

TEST_P(OddSparseDeepseekTest, TheFastBackendIsNearTheReference) {
  const ConfigFolder folder(GetParam().name, GetParam().model.Config());
  for (const int64_t length : kLengths)
    for (const int64_t chunk : {25, 512})
      ExpectNearWithSelections(folder.path(), length, AllPositions(length), chunk);
}

INSTANTIATE_TEST_SUITE_P(Shapes, OddSparseDeepseekTest, ::testing::ValuesIn(kSparseShapes),
                         [](const auto& param) { return std::string(param.param.name); });

// Models of random weights choose other experts and positions everywhere when activations are
// rounded to bfloat16, so the rule of bfloat16 holds where nothing is left out: all experts of all
// groups are chosen, and no prompt is longer than what is selected.
const OddDeepseek kShapesWithoutChoice[] = {
    {"v3_no_query_rank", {.heads = 12, .query_rank = 0, .experts_per_token = 12, .groups_kept = 3}},
    {"v3_nine_layers", {.layers = 9, .experts_per_token = 12, .groups_kept = 3}},
    {"v32", {.top_k = 333, .experts_per_token = 12, .groups_kept = 3}},
};

class OddDeepseekBf16Test : public ::testing::TestWithParam<OddDeepseek> {};

TEST_P(OddDeepseekBf16Test, TheFastBackendStaysNearTheReference) {
  const auto& [name, model] = GetParam();
  const ConfigFolder folder(std::string("bf16_") + name, model.Config());
  const auto reference = Start(folder.path(), {.threads = 2, .load_format = "dummy"});
  const auto engine = Start(folder.path(), {.backend = "cpu",
                                            .dtype = "bf16",
                                            .chunk_tokens = 50,
                                            .threads = 2,
                                            .page_size = 16,
                                            .load_format = "dummy"});
  double sum = 0;
  int64_t rows = 0;
  for (const int64_t length : {1, 2, 63, 65, 333}) {
    const auto ids = OddIds(length);
    const GoldenCase golden = AsGolden(ids, Score(*reference, ids, AllPositions(length)));
    const Deviation deviation = Compare(Score(*engine, ids, golden.positions), golden);
    EXPECT_LE(deviation.mean, 0.05) << length;
    EXPECT_EQ(deviation.flips, 0) << length;
    sum += deviation.mean * static_cast<double>(deviation.rows);
    rows += deviation.rows;
  }
  EXPECT_LE(sum / static_cast<double>(rows), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Shapes, OddDeepseekBf16Test, ::testing::ValuesIn(kShapesWithoutChoice),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace longspan::testing
