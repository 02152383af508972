// The order of computation does not change a token: the same bits for any chunk length and number
// of stages.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

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
class CpuLayoutsTest : public ::testing::TestWithParam<std::tuple<const char*, const char*, bool>> {
};

TEST_P(CpuLayoutsTest, GiveTheSameBits) {
  const auto& [name, dtype, deterministic] = GetParam();
  if (IsFixture(name)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(name);
  const auto ids = RandomIds(1500, 1024, 12);
  const auto positions = SomePositions(1500);
  Layout layout{
      .backend = "cpu", .dtype = dtype, .chunk_tokens = 1500, .deterministic = deterministic};
  const Scores want = Score(*Start(model, layout), ids, positions);
  struct Cut {
    int stages;
    int64_t chunk;
    int threads;
  };
  for (const Cut& cut : {Cut{1, 64, 1}, {1, 7, 2}, {4, 100, 1}, {3, 1, 1}, {2, 512, 2}}) {
    layout.stages = cut.stages;
    layout.chunk_tokens = cut.chunk;
    layout.threads = cut.threads;
    ExpectSameBits(Score(*Start(model, layout), ids, positions), want, layout.ToString());
  }
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

INSTANTIATE_TEST_SUITE_P(Dense, CpuLayoutsTest,
                         ::testing::Combine(::testing::Values("tiny-qwen3-moe"),
                                            ::testing::Values("f32", "bf16"),
                                            ::testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(
    Deepseek, CpuLayoutsTest,
    ::testing::Combine(::testing::Values("tiny-deepseek-v3", "tiny-deepseek-v32"),
                       ::testing::Values("f32", "bf16"), ::testing::Values(true)));

}  // namespace
}  // namespace longspan::testing
