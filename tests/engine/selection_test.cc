// The positions that the indexers of DeepSeek V3.2 select, against Hugging Face transformers.
#include <algorithm>

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "checkpoint/checkpoint.h"
#include "model/architecture.h"
#include "model/stage_model.h"
#include "runtime/kv_cache.h"
#include "tests/engine/deepseek_cases.h"
#include "tests/support/paged_step.h"
#include "tests/support/test_device.h"

namespace longspan::testing {
namespace {

using support::PagedStep;
using support::SliceRange;
using tensor::DType;
using tensor::View;

constexpr int64_t kPageSize = 64;

// What index_select left for the last row of every layer, padding cut off.
std::vector<std::vector<int32_t>>& Seen() {
  static std::vector<std::vector<int32_t>> seen;
  return seen;
}

void SelectAndRemember(tensor::ExecutionContext& context, const ops::IndexSelectArgs& args) {
  backend::reference::ReferenceBackend().ops().index_select(context, args);
  const auto* last = args.selected.row<int32_t>(args.selected.size(0) - 1);
  const auto* end = std::find(last, last + args.selected.size(1), -1);
  Seen().emplace_back(last, end);
}

// A whole prompt as one step of one stage.
std::vector<std::vector<int32_t>> SelectionsOf(const std::string& name,
                                               const std::vector<int32_t>& ids) {
  const ops::Backend& backend = backend::reference::ReferenceBackend();
  const auto rows = static_cast<int64_t>(ids.size());
  const auto folder = ModelFolder(name);
  const spec::ModelSpec spec = model::LoadModelSpec(folder).value();
  support::TestDevice device(backend, 2, {.rows = rows});
  const auto weights = checkpoint::OpenCheckpoint(folder).value();
  model::WeightLoader loader(*weights, backend, device.queue(), DType::kF32);
  const model::StagePart part = {.ranges = {{0, spec.layers()}}};
  const auto stage = model::StageModel::Load(spec, part, loader).value();

  const PagedStep paged(std::vector<SliceRange>{{0, rows}}, std::vector<int64_t>{rows}, kPageSize,
                        3);
  const auto cache = runtime::KvCache::Allocate(backend, spec, part.ranges,
                                                {.pages = paged.pages(), .page_size = kPageSize})
                         .value();
  // More than the ops of these small models take.
  constexpr int64_t kOpBytes = 64 << 20;
  tensor::Workspace workspace(
      backend.Allocate(stage->ScratchBytes(rows, DType::kF32) + kOpBytes).value());
  tensor::ExecutionContext context = {device.queue(), workspace};
  ops::OpTable ops = backend.ops();
  ops.index_select = SelectAndRemember;

  const int64_t pairs = stage->inverse_frequencies().size(0);
  const View cosines = device.Zeros(DType::kF32, {rows, pairs});
  const View sines = device.Zeros(DType::kF32, {rows, pairs});
  const model::Step step = {context, ops, paged.Upload(device), cosines, sines};
  ops::Dispatch(context, ops.rope_table,
                {.positions = step.tables.positions,
                 .inverse_frequencies = stage->inverse_frequencies(),
                 .amplitude = stage->rope_amplitude(),
                 .cosines = cosines,
                 .sines = sines});
  const View residual = device.Zeros(DType::kF32, {rows, spec.hidden_size});
  stage->Embed(step, device.Ints(ids, {rows}), residual);
  Seen().clear();
  stage->Forward(step, 0, cache.Layers(0), residual);
  return Seen();
}

class SelectionTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SelectionTest, IsTheReferences) {
  LONGSPAN_REQUIRE_FIXTURES();
  int compared = 0;
  for (const GoldenCase& golden : ReadGolden(GetParam())) {
    if (golden.ids.size() > 1000) continue;
    ASSERT_FALSE(golden.selected.empty()) << golden.name;
    EXPECT_EQ(SelectionsOf(GetParam(), golden.ids), golden.selected) << golden.name;
    if (golden.selected[0].size() < golden.ids.size()) ++compared;
  }
  EXPECT_GT(compared, 0) << "no case is longer than what is selected";
}

INSTANTIATE_TEST_SUITE_P(Models, SelectionTest,
                         ::testing::Values("tiny-deepseek-v32", "tiny-deepseek-v32-fp8"));

}  // namespace
}  // namespace longspan::testing
