// Ranks that divide a stage on a GPU compute what one does, but for the order of sums. All of them
// are threads and share the GPU; tools/gpu_check.sh has ranks that are processes.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/engine/closeness.h"
#include "tests/engine/golden.h"
#include "tests/engine/same_bits.h"

namespace longspan::testing {
namespace {

struct Case {
  const char* model;
  int vocab;
  Layout layout;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.layout.ToString(); }

std::vector<Case> Cases() {
  const std::vector<Layout> grouped = {
      {.tensor_ranks = 2},
      {.tensor_ranks = 4, .expert_ranks = 2},
      {.context_ranks = 2},
      {.context_ranks = 3, .token_split = "zigzag"},
      {.stages = 2, .tensor_ranks = 2},
      {.stages = 2, .tensor_ranks = 2, .expert_ranks = 4, .context_ranks = 2},
      {.context_ranks = 2, .kv_placement = "sharded"}};
  const std::vector<Layout> latent = {{.tensor_ranks = 2, .expert_ranks = 2},
                                      {.context_ranks = 2, .token_split = "zigzag"},
                                      {.tensor_ranks = 2, .expert_ranks = 4, .context_ranks = 2}};
  std::vector<Case> cases = {
      {"rand-qwen2", 320, {.tensor_ranks = 2}},
      {"rand-llama", 320, {.context_ranks = 2}},
      {"tiny-deepseek-v3", 1024, {.context_ranks = 2, .kv_placement = "sharded"}}};
  for (const Layout& layout : grouped) cases.push_back({"tiny-qwen3-moe", 1024, layout});
  for (const Layout& layout : latent) cases.push_back({"rand-deepseek-v32", 320, layout});
  return cases;
}

class GpuRanksTest : public ::testing::TestWithParam<Case> {
 protected:
  static Layout OnGpu(Layout layout, const char* dtype) {
    layout.backend = "cuda";
    layout.dtype = dtype;
    layout.chunk_tokens = 100;
    return layout;
  }
};
INSTANTIATE_TEST_SUITE_P(All, GpuRanksTest, ::testing::ValuesIn(Cases()));

TEST_P(GpuRanksTest, LogitsAreTheSameToRounding) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  const auto one = Start(model, OnGpu({}, "f32"));
  const auto several = Start(model, OnGpu(c.layout, "f32"));
  for (const int64_t length : {1, 2, 17, 333}) {
    const auto ids = RandomIds(length, c.vocab, 3);
    const auto positions = SomePositions(length);
    EXPECT_LE(LargestDifference(Score(*several, ids, positions), Score(*one, ids, positions)), 2e-5)
        << length;
  }
}

// Chunks and decoding rows of several sequences in one step, drawn and greedy.
TEST_P(GpuRanksTest, TokensAreTheSame) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  const Case& c = GetParam();
  if (IsFixture(c.model)) LONGSPAN_REQUIRE_FIXTURES();
  const auto model = ModelFolder(c.model);
  const auto requests = [&] {
    std::vector<engine::Request> all;
    for (uint64_t i = 0; i < 6; ++i) {
      engine::Request& request = all.emplace_back();
      request.prompt = RandomIds(1 + 40 * static_cast<int64_t>(i), c.vocab, i);
      request.max_tokens = 8;
      request.ignore_end_tokens = true;
      if (i % 3 == 1) request.sampling = {.temperature = 0.9, .top_k = 7, .seed = i};
      if (i % 3 == 2) request.sampling = {.repetition_penalty = 1.3, .top_logprobs = 2};
    }
    return all;
  };
  const auto want = Generate(*Start(model, OnGpu({}, "f32")), requests());
  const auto got = Generate(*Start(model, OnGpu(c.layout, "f32")), requests());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].ids, want[i].ids) << i;
}

// Ranks that divide tokens alone have the bits of one, where no kernel is chosen by the number of
// rows.
TEST(GpuContextRanksTest, BitsAreThoseOfOneWhereThatIsAskedFor) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  for (const auto& [name, vocab] :
       {std::pair{"tiny-qwen3-moe", 1024}, {"rand-deepseek-v32", 320}}) {
    Layout layout = {
        .backend = "cuda", .dtype = "bf16", .chunk_tokens = 100, .deterministic = true};
    const auto ids = RandomIds(333, vocab, 3);
    const auto positions = SomePositions(333);
    const Scores want = Score(*Start(ModelFolder(name), layout), ids, positions);
    layout.context_ranks = 3;
    for (const char* split : {"interleave", "zigzag"}) {
      layout.token_split = split;
      ExpectSameBits(Score(*Start(ModelFolder(name), layout), ids, positions), want,
                     layout.ToString());
    }
  }
}

// In bf16, on the kernels that are used then: as near to the reference as one rank is.
TEST_P(GpuRanksTest, LogitsInBf16StayNearTheReference) {
  LONGSPAN_REQUIRE_BACKEND("cuda");
  const Case& c = GetParam();
  if (std::string(c.model) != "tiny-qwen3-moe") GTEST_SKIP() << "one model is enough";
  const auto engine = Start(ModelFolder(c.model), OnGpu(c.layout, "bf16"));
  double sum = 0;
  int64_t rows = 0;
  for (const GoldenCase& golden : ReadGolden(c.model)) {
    if (golden.ids.size() > 1024) continue;
    const Deviation deviation = Compare(Score(*engine, golden.ids, golden.positions), golden);
    EXPECT_LE(deviation.mean, 0.05) << golden.name;
    EXPECT_EQ(deviation.flips, 0) << golden.name;
    sum += deviation.mean * static_cast<double>(deviation.rows);
    rows += deviation.rows;
  }
  EXPECT_LE(sum / static_cast<double>(rows), 0.02);
}

}  // namespace
}  // namespace longspan::testing
