// Attention to parts of the keys becomes attention to all.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"

namespace longspan::backend::cpu {
namespace {

using Weights = std::array<float, ops::kMostMergedParts>;

// Of parts with these sums, `stride` apart.
Weights WeightsOf(const float* exp_sums, int64_t stride, int64_t parts) {
  float largest = exp_sums[0];
  for (int64_t part = 1; part < parts; ++part) largest = std::max(largest, exp_sums[part * stride]);
  Weights weights{};
  for (int64_t part = 0; part < parts; ++part) {
    const float* m_and_l = exp_sums + part * stride;
    weights[static_cast<size_t>(part)] = m_and_l[1] * std::exp2(m_and_l[0] - largest);
  }
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F);
  for (float& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

void MergeAttention(tensor::ExecutionContext& context, const ops::MergeAttentionArgs& args) {
  const int64_t parts = args.parts.size(0);
  const int64_t heads = args.out.size(1);
  const int64_t row_heads = args.out.size(0) * heads;
  const int64_t element = tensor::SizeOf(args.out.dtype());
  const auto combine = ActiveKernels().combine[TypeOf(args.out)];
  std::array<int32_t, ops::kMostMergedParts> places{};
  std::iota(places.begin(), places.end(), 0);
  CombineRow common;
  common.columns = args.out.size(2);
  common.x_stride = row_heads * common.columns * element;
  common.places = places.data();
  common.terms = parts;
  ForRows(context, args.out.size(0), parts * heads * common.columns, [&](int64_t row) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t place = row * heads + head;
      const Weights weights =
          WeightsOf(args.exp_sums.data<float>() + 2 * place, 2 * row_heads, parts);
      CombineRow merged = common;
      merged.x = static_cast<const char*>(args.parts.raw()) + place * common.columns * element;
      merged.weights = weights.data();
      merged.out = RowAt(args.out, row) + head * args.out.stride(1) * element;
      combine(merged);
    }
  });
}

}  // namespace longspan::backend::cpu
