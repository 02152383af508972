// The order of computation does not change a token: the same bits for any chunk length and number
// of stages.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/golden.h"

namespace longspan::testing {
namespace {

std::vector<int64_t> SomePositions(int64_t length) {
  std::vector<int64_t> positions;
  for (int64_t position = 0; position < length; position += std::max<int64_t>(1, length / 37))
    positions.push_back(position);
  if (positions.back() != length - 1) positions.push_back(length - 1);
  return positions;
}

void ExpectSameBits(const Scores& got, const Scores& want, const std::string& what) {
  ASSERT_EQ(got.positions, want.positions) << what;
  for (size_t i = 0; i < want.logits.size(); ++i)
    ASSERT_EQ(got.logits[i], want.logits[i]) << what << " position " << want.positions[i];
  ASSERT_EQ(got.hidden, want.hidden) << what;
}

struct Case {
  const char* model;
  const char* backend;
  const char* dtype;
  int layers;
  int64_t length;
};

class LayoutsTest : public ::testing::TestWithParam<Case> {};

TEST_P(LayoutsTest, GiveTheSameBits) {
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  const int vocab = std::string(c.model).starts_with("tiny-") ? 1024 : 320;
  const auto ids = RandomIds(c.length, vocab, 11);
  const auto positions = SomePositions(c.length);
  Layout layout{.backend = c.backend, .dtype = c.dtype, .chunk_tokens = c.length, .threads = 2};
  const Scores want = Score(*Start(model, layout), ids, positions);
  for (const int64_t chunk : {1, 7, 64, 100, 512}) {
    layout = {.backend = c.backend, .dtype = c.dtype, .chunk_tokens = chunk, .threads = 2};
    ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
  }
  for (int stages = 2; stages <= std::min(4, c.layers); ++stages) {
    for (const int64_t chunk : {100, 512}) {
      layout = {.backend = c.backend,
                .dtype = c.dtype,
                .stages = stages,
                .chunk_tokens = chunk,
                .page_size = chunk == 100 ? 16 : 64};
      ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutsTest,
                         ::testing::Values(Case{"rand-llama", "reference", "f32", 3, 2048},
                                           Case{"rand-llama31", "reference", "f32", 3, 1111},
                                           Case{"rand-qwen2", "reference", "f32", 3, 700},
                                           Case{"rand-qwen3", "reference", "f32", 3, 333},
                                           Case{"rand-deepseek-v32", "reference", "f32", 4, 700},
                                           Case{"tiny-deepseek-v3", "reference", "f32", 4, 520},
                                           Case{"tiny-deepseek-v32", "reference", "f32", 4, 700},
                                           Case{"tiny-qwen3-moe", "reference", "f32", 4, 2048}),
                         [](const auto& param) {
                           std::string name =
                               std::string(param.param.model) + "_" + param.param.backend;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The fast backend keeps the rule as well, with pages of one size: keys are taken in blocks cut at
// page borders.
class CpuLayoutsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CpuLayoutsTest, GiveTheSameBits) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(1500, 1024, 12);
  const auto positions = SomePositions(1500);
  const Scores want = Score(
      *Start(model, {.backend = "cpu", .dtype = GetParam(), .chunk_tokens = 1500}), ids, positions);
  for (const Layout& layout :
       {Layout{.backend = "cpu", .dtype = GetParam(), .chunk_tokens = 64},
        Layout{.backend = "cpu", .dtype = GetParam(), .chunk_tokens = 7, .threads = 2},
        Layout{.backend = "cpu", .dtype = GetParam(), .stages = 4, .chunk_tokens = 100},
        Layout{
            .backend = "cpu", .dtype = GetParam(), .stages = 2, .chunk_tokens = 512, .threads = 2}})
    ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
}

// The longest prompts, by the same rule.
TEST(LongLayoutsTest, GiveTheSameBits) {
  const auto model = ModelFolder("tiny-qwen3-moe");
  const auto ids = RandomIds(16000, 1024, 13);
  const auto positions = SomePositions(16000);
  const Scores want =
      Score(*Start(model, {.backend = "cpu", .dtype = "f32", .chunk_tokens = 2048, .threads = 2}),
            ids, positions);
  const Layout layout{.backend = "cpu", .dtype = "f32", .stages = 2, .chunk_tokens = 500};
  ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
}

INSTANTIATE_TEST_SUITE_P(Types, CpuLayoutsTest, ::testing::Values("f32", "bf16"));

}  // namespace
}  // namespace longspan::testing
