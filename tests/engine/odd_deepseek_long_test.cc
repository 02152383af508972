// DeepSeek with odd sizes and dummy weights: prompts of up to 4,097 tokens.
#include "tests/engine/odd_deepseek.h"

namespace longspan::testing {
namespace {

constexpr int64_t kLongest = 4097;

const OddDeepseek kShapes[] = {
    {"v3_six_heads", {.heads = 6, .layers = 2}},
    {"v3_twelve_heads_no_query_rank", {.heads = 12, .layers = 1, .query_rank = 0}},
    {"v32_selects_64", {.heads = 12, .layers = 2, .top_k = 64}},
    {"v32_selects_2048", {.heads = 6, .layers = 1, .top_k = 2048}},
    {"v32_selects_4096", {.heads = 6, .layers = 1, .top_k = 4096}},
};

class OddDeepseekLongTest : public ::testing::TestWithParam<OddDeepseek> {};

TEST_P(OddDeepseekLongTest, TheFastBackendIsNearTheReference) {
  const auto& [name, model] = GetParam();
  const ConfigFolder folder(std::string("long_") + name, model.Config());
  // A row does not depend on later ones: one prompt has the last rows of all shorter ones.
  std::vector<int64_t> positions;
  for (int64_t position = 0; position < kLongest; ++position)
    if (position % 97 == 0 || std::abs(position - model.top_k) <= 2 || position >= kLongest - 3)
      positions.push_back(position);
  if (model.top_k > 0) {
    ExpectNearWithSelections(folder.path(), kLongest, positions, 500);
    return;
  }
  const auto ids = OddIds(kLongest);
  const GoldenCase golden = AsGolden(
      ids, Score(*Start(folder.path(), {.threads = 2, .load_format = "dummy"}), ids, positions));
  const Layout layout{.backend = "cpu",
                      .dtype = "f32",
                      .stages = model.layers,
                      .chunk_tokens = 500,
                      .load_format = "dummy"};
  ExpectNear(Score(*Start(folder.path(), layout), ids, positions), golden, layout.ToString());
}

INSTANTIATE_TEST_SUITE_P(Shapes, OddDeepseekLongTest, ::testing::ValuesIn(kShapes),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace longspan::testing
