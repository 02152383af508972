#include "model/latent_form.h"

#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/thread_pool.h"

namespace longspan::model {
namespace {

// Form, first slice, slices, first row, rows.
using RunParts = std::tuple<bool, int64_t, int64_t, int64_t, int64_t>;

std::vector<RunParts> RunsOf(const std::vector<SliceExtent>& slices, LatentFormRule rule) {
  rule.latent = {.latent_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  tensor::ThreadPool queue({.threads = 1});
  tensor::Workspace workspace;
  tensor::ExecutionContext context = {queue, workspace};
  const ops::OpTable ops;
  LoneRank alone;
  Step step = {context, ops, alone};
  step.slices = slices;
  step.tables.slices = 3;
  step.tables.rows = 9;
  std::vector<RunParts> runs;
  ForLatentRuns(rule, step, [&](const LatentRun& run) {
    runs.emplace_back(run.expanded, run.first_slice, run.slices, run.first_row, run.rows);
  });
  return runs;
}

// Decoding rows, a chunk, a short one far in, a prompt's first.
const std::vector<SliceExtent> kMixed = {
    {900, 901, 1}, {70, 71, 1}, {4096, 4608, 512}, {8192, 8201, 9}, {0, 40, 40}};

TEST(LatentFormTest, CutsAStepIntoRunsOfOneForm) {
  EXPECT_THAT(RunsOf(kMixed, {.longest_dense = INT64_MAX}),
              testing::ElementsAre(RunParts{false, 0, 2, 0, 2}, RunParts{true, 2, 1, 2, 512},
                                   RunParts{false, 3, 1, 514, 9}, RunParts{true, 4, 1, 523, 40}));
}

TEST(LatentFormTest, AbsorbsWhatAnIndexerSelectsFor) {
  EXPECT_THAT(RunsOf(kMixed, {.longest_dense = 2048}),
              testing::ElementsAre(RunParts{false, 0, 4, 0, 523}, RunParts{true, 4, 1, 523, 40}));
  EXPECT_THAT(RunsOf({{1536, 2048, 512}, {1537, 2049, 512}}, {.longest_dense = 2048}),
              testing::ElementsAre(RunParts{true, 0, 1, 0, 512}, RunParts{false, 1, 1, 512, 512}));
}

// A context-parallel rank has some rows of a slice, and computes them in the form of the whole one.
TEST(LatentFormTest, ChoosesByTheWholeSlice) {
  EXPECT_THAT(RunsOf({{4096, 4608, 5}, {4096, 4101, 5}}, {.longest_dense = INT64_MAX}),
              testing::ElementsAre(RunParts{true, 0, 1, 0, 5}, RunParts{false, 1, 1, 5, 5}));
}

TEST(LatentFormTest, AbsorbsAllInOneFormAndWhereSlicesAreNotKnown) {
  EXPECT_THAT(RunsOf(kMixed, {.longest_dense = INT64_MAX, .one_form = true}),
              testing::ElementsAre(RunParts{false, 0, 5, 0, 563}));
  EXPECT_THAT(RunsOf({}, {.longest_dense = INT64_MAX}),
              testing::ElementsAre(RunParts{false, 0, 3, 0, 9}));
}

}  // namespace
}  // namespace longspan::model
