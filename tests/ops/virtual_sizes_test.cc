// Rows and pages whose offsets pass 2^31 and 2^32 elements: every op computes the same bits there
// as on dense memory.
#include "tests/ops/compare.h"
#include "tests/ops/virtual_memory.h"
#include "tests/support/sampling_rows.h"

namespace longspan::op_suite {
namespace {

using support::RandomValues;

class VirtualSizesTest : public BackendTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VirtualSizesTest);
INSTANTIATE_TEST_SUITE_P(, VirtualSizesTest, testing::ValuesIn(AllBackends()), CaseName);

// Matrices reach from 0 beyond 2^33 elements, and so do rows and heads together.
constexpr int64_t kRows = 5;
constexpr int64_t kHeadRows = 3;
constexpr int64_t kHeads = 2;
// Full vectors of every instruction set, and some elements more.
constexpr int64_t kColumns = 70;

std::vector<float> Joined(std::vector<float> first, const auto& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST_P(VirtualSizesTest, Norms) {
  const DType type = GetParam().compute;
  const auto x = RandomValues(kRows * kColumns, 1, 1, type);
  const auto heads = RandomValues(kHeadRows * kHeads * kColumns, 2, 1, type);
  const auto weight = RandomValues(kColumns, 3);
  const ops::WorkspaceShape shape = {.rows = kRows, .heads = kHeads, .head_dim = kColumns};
  ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
    TestDevice& device = args.device();
    const View w = device.Floats(weight, DType::kF32, {kColumns});
    const View rms = args.Out(type, {kRows, kColumns});
    const View layer = args.Out(type, {kRows, kColumns});
    const View by_head = args.Out(type, {kHeadRows, kHeads, kColumns});
    const View from = args.Floats(x, type, {kRows, kColumns});
    const View from_heads = args.Floats(heads, type, {kHeadRows, kHeads, kColumns});
    device.Run(device.ops().rms_norm, {.x = from, .weight = w, .out = rms});
    device.Run(device.ops().rms_norm, {.x = from_heads, .weight = w, .out = by_head});
    device.Run(device.ops().layer_norm, {.x = from, .weight = w, .bias = w, .out = layer});
    return Joined(Joined(args.ReadFloats(rms), args.ReadFloats(layer)), args.ReadFloats(by_head));
  });
}

TEST_P(VirtualSizesTest, AddAndGate) {
  const DType type = GetParam().compute;
  const auto x = RandomValues(kRows * kColumns, 1, 1, type);
  const auto wide = RandomValues(kRows * 2 * kColumns, 2, 1, type);
  ExpectSameBits(GetParam(), {.rows = kRows}, [&](Arguments& args) {
    TestDevice& device = args.device();
    const View sum = args.Floats(x, type, {kRows, kColumns});
    const View gate_up = args.Floats(wide, type, {kRows, 2 * kColumns});
    const View gated = args.Out(type, {kRows, kColumns});
    device.Run(device.ops().silu_mul, {.gate_up = gate_up, .out = gated});
    device.Run(device.ops().add, {.x = sum, .y = gate_up.Columns(0, kColumns)});
    return Joined(args.ReadFloats(gated), args.ReadFloats(sum));
  });
}

TEST_P(VirtualSizesTest, Rope) {
  const DType type = GetParam().compute;
  constexpr int64_t kPairs = kColumns / 2;
  const auto x = RandomValues(kHeadRows * kHeads * kColumns, 1, 1, type);
  const auto frequencies = support::Magnitudes(RandomValues(kPairs, 2));
  const std::vector<int32_t> positions = {0, 70000, 999999};
  for (const spec::RopePairs pairs : {spec::RopePairs::kHalfSplit, spec::RopePairs::kInterleaved}) {
    const ops::WorkspaceShape shape = {.rows = kHeadRows, .heads = kHeads, .head_dim = kColumns};
    ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
      TestDevice& device = args.device();
      const View cosines = args.Out(DType::kF32, {kHeadRows, kPairs});
      const View sines = args.Out(DType::kF32, {kHeadRows, kPairs});
      const View rotated = args.Floats(x, type, {kHeadRows, kHeads, kColumns});
      device.Run(device.ops().rope_table,
                 {.positions = device.Ints(positions, {kHeadRows}),
                  .inverse_frequencies = device.Floats(frequencies, DType::kF32, {kPairs}),
                  .cosines = cosines,
                  .sines = sines});
      device.Run(device.ops().rope,
                 {.x = rotated, .cosines = cosines, .sines = sines, .pairs = pairs});
      return Joined(args.ReadFloats(rotated), args.ReadFloats(sines));
    });
  }
}

TEST_P(VirtualSizesTest, Linear) {
  const DType type = GetParam().compute;
  constexpr int64_t kFeatures = 130;
  const auto x = RandomValues(kRows * kColumns, 1, 1, type);
  const auto weight = RandomValues(kFeatures * kColumns, 2, 1, type);
  for (const DType out_type : {type, DType::kF32}) {
    const ops::WorkspaceShape shape = {.rows = kRows, .max_columns = kColumns};
    ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
      TestDevice& device = args.device();
      const View out = args.Out(out_type, {kRows, kFeatures});
      device.Run(device.ops().linear, {.x = args.Floats(x, type, {kRows, kColumns}),
                                       .weight = device.Weight(weight, type, kFeatures, kColumns),
                                       .bias = {},
                                       .out = out});
      return args.ReadFloats(out);
    });
  }
}

TEST_P(VirtualSizesTest, HeadLinear) {
  const DType type = GetParam().compute;
  constexpr int64_t kFeatures = 66;
  const auto x = RandomValues(kHeadRows * kHeads * kColumns, 1, 1, type);
  const auto weight = RandomValues(kFeatures * kColumns, 2, 1, type);
  const ops::WorkspaceShape shape = {.rows = kHeadRows, .max_columns = kColumns};
  ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
    TestDevice& device = args.device();
    const View out = args.Out(type, {kHeadRows, kHeads, kFeatures});
    const std::vector<const ops::PackedWeight*> weights(
        kHeads, device.Weight(weight, type, kFeatures, kColumns));
    device.Run(
        device.ops().head_linear,
        {.x = args.Floats(x, type, {kHeadRows, kHeads, kColumns}), .weights = weights, .out = out});
    return args.ReadFloats(out);
  });
}

TEST_P(VirtualSizesTest, GroupedLinear) {
  const DType type = GetParam().compute;
  constexpr int64_t kFeatures = 66;
  const auto x = RandomValues(kRows * kColumns, 1, 1, type);
  const auto weight = RandomValues(kFeatures * kColumns, 2, 1, type);
  for (const bool indirect : {true, false}) {
    const ops::WorkspaceShape shape = {
        .rows = kRows, .max_columns = kColumns, .experts = 2, .experts_per_token = 1};
    ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
      TestDevice& device = args.device();
      const View out = args.Out(type, {kRows, kFeatures});
      const std::vector<const ops::PackedWeight*> weights(
          2, device.Weight(weight, type, kFeatures, kColumns));
      const std::vector<int32_t> begin = {0, 2, kRows};
      const std::vector<int32_t> source_rows = {4, 0, 3, 2, 1};
      device.Run(device.ops().grouped_linear,
                 {.x = args.Floats(x, type, {kRows, kColumns}),
                  .weights = weights,
                  .expert_begin = device.Ints(begin, {3}),
                  .source_rows = indirect ? device.Ints(source_rows, {kRows}) : View(),
                  .out = out});
      return args.ReadFloats(out);
    });
  }
}

TEST_P(VirtualSizesTest, Router) {
  constexpr int64_t kExperts = 12;
  constexpr int64_t kChoices = 4;
  const auto logits = RandomValues(kRows * kExperts, 1, 4);
  for (const auto scoring : {spec::ExpertScoring::kSoftmax, spec::ExpertScoring::kSigmoid}) {
    const ops::WorkspaceShape shape = {
        .rows = kRows, .experts = kExperts, .experts_per_token = kChoices};
    ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
      TestDevice& device = args.device();
      const View ids = args.Out(DType::kI32, {kRows, kChoices});
      const View weights = args.Out(DType::kF32, {kRows, kChoices});
      const bool grouped = scoring == spec::ExpertScoring::kSigmoid;
      device.Run(device.ops().router,
                 {.logits = args.Floats(logits, DType::kF32, {kRows, kExperts}),
                  .scoring = scoring,
                  .groups = grouped ? 3 : 1,
                  .groups_kept = grouped ? 2 : 1,
                  .expert_ids = ids,
                  .expert_weights = weights});
      const View begin = device.Zeros(DType::kI32, {kExperts + 1});
      const View source_rows = device.Zeros(DType::kI32, {kRows * kChoices});
      const View places = device.Zeros(DType::kI32, {kRows, kChoices});
      device.Run(device.ops().expert_order, {.expert_ids = ids,
                                             .expert_begin = begin,
                                             .source_rows = source_rows,
                                             .sorted_places = places});
      return Joined(Joined(args.ReadFloats(weights), args.ReadInts(ids)), device.ReadInts(places));
    });
  }
}

TEST_P(VirtualSizesTest, ExpertCombine) {
  const DType type = GetParam().compute;
  constexpr int64_t kPairs = 6;
  constexpr int64_t kChoices = 2;
  const auto x = RandomValues(kPairs * kColumns, 1, 1, type);
  const auto weights = RandomValues(kPairs, 2);
  const std::vector<int32_t> places = {5, 0, 3, 1, 4, 2};
  constexpr int64_t kOutRows = kPairs / kChoices;
  ExpectSameBits(GetParam(), {.rows = kOutRows}, [&](Arguments& args) {
    TestDevice& device = args.device();
    const View out = args.Out(type, {kOutRows, kColumns});
    device.Run(device.ops().expert_combine,
               {.x = args.Floats(x, type, {kPairs, kColumns}),
                .sorted_places = device.Ints(places, {kOutRows, kChoices}),
                .expert_weights = args.Floats(weights, DType::kF32, {kOutRows, kChoices}),
                .out = out});
    return args.ReadFloats(out);
  });
}

TEST_P(VirtualSizesTest, Sampling) {
  constexpr int64_t kVocab = 300;
  constexpr int64_t kBest = 7;
  const auto logits = RandomValues(kRows * kVocab, 1, 5);
  std::vector<support::SamplingRow> rows(kRows);
  for (int64_t row = 0; row < kRows; ++row) {
    rows[row].spec = {.temperature = row == 0 ? 0 : 0.8, .top_p = 0.9, .seed = 3};
    rows[row].position = row + (int64_t{1} << 32);
  }
  const std::vector<int32_t> scored = {299, 0, 7, 150, 298};
  const ops::WorkspaceShape shape = {.rows = kRows, .logit_rows = kRows, .vocab_size = kVocab};
  ExpectSameBits(GetParam(), shape, [&](Arguments& args) {
    TestDevice& device = args.device();
    const View view = args.Floats(logits, DType::kF32, {kRows, kVocab});
    const View tokens = device.Zeros(DType::kI32, {kRows});
    const View logprobs = device.Zeros(DType::kF32, {kRows});
    const View scores = device.Zeros(DType::kF32, {kRows});
    const View best = args.Out(DType::kI32, {kRows, kBest});
    const View best_logprobs = args.Out(DType::kF32, {kRows, kBest});
    device.Run(device.ops().sample, {.logits = view,
                                     .tables = support::UploadSampling(device, rows),
                                     .tokens = tokens,
                                     .logprobs = logprobs});
    device.Run(device.ops().token_logprob,
               {.logits = view, .tokens = device.Ints(scored, {kRows}), .logprobs = scores});
    device.Run(device.ops().top_logprobs,
               {.logits = view, .tokens = best, .logprobs = best_logprobs});
    const auto sampled = Joined(device.ReadFloats(logprobs), device.ReadInts(tokens));
    const auto listed = Joined(args.ReadFloats(best_logprobs), args.ReadInts(best));
    return Joined(Joined(sampled, device.ReadFloats(scores)), listed);
  });
}

// A dense matrix of more than 2^32 elements, of which an index names some rows from the first to
// the last.
TEST_P(VirtualSizesTest, RowsOfALargeMatrix) {
  const DType type = GetParam().compute;
  constexpr int64_t kMatrixRows = (int64_t{1} << 32) / kColumns + 3;
  const auto values = RandomValues(kRows * kColumns, 1, 1, type);
  const VirtualMemory memory(kMatrixRows * kColumns * 4);
  ExpectSameBits(GetParam(), {.rows = kRows}, [&](Arguments& args) {
    TestDevice& device = args.device();
    View matrix = device.Floats(values, type, {kRows, kColumns});
    std::vector<int32_t> index;
    for (int64_t row = kRows - 1; row >= 0; --row) index.push_back(static_cast<int32_t>(row));
    if (args.far()) {
      matrix = memory.At(0, type, {kMatrixRows, kColumns});
      for (int32_t& row : index) {
        const int64_t far_row = row * (kMatrixRows - 1) / (kRows - 1);
        Store(device, std::span(values).subspan(row * kColumns, kColumns), matrix.Rows(far_row, 1));
        row = static_cast<int32_t>(far_row);
      }
    }
    const View gathered = args.Out(type, {kRows, kColumns});
    const View embedded = args.Out(type, {kRows, kColumns});
    const View rows = device.Ints(index, {kRows});
    device.Run(device.ops().gather_rows, {.x = matrix, .index = rows, .out = gathered});
    device.Run(device.ops().embedding, {.table = matrix, .tokens = rows, .out = embedded});
    return Joined(args.ReadFloats(gathered), args.ReadFloats(embedded));
  });
}

}  // namespace
}  // namespace longspan::op_suite
