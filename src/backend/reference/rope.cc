// Rotary position embedding.
#include <cmath>

#include "backend/reference/kernels.h"
#include "backend/reference/thread_scratch.h"

namespace longspan::backend::reference {

void RopeTable(tensor::ExecutionContext& context, const ops::RopeTableArgs& args) {
  const auto* positions = args.positions.data<int32_t>();
  const auto* frequencies = args.inverse_frequencies.data<float>();
  Threads(context).ParallelFor(args.cosines.size(0), [&](int64_t row, int) {
    float* cosines = args.cosines.row<float>(row);
    float* sines = args.sines.row<float>(row);
    for (int64_t i = 0; i < args.cosines.size(1); ++i) {
      const float angle = static_cast<float>(positions[row]) * frequencies[i];
      cosines[i] = static_cast<float>(args.amplitude * std::cos(static_cast<double>(angle)));
      sines[i] = static_cast<float>(args.amplitude * std::sin(static_cast<double>(angle)));
    }
  });
}

namespace {

void RotateHead(float* x, const float* cosines, const float* sines, int64_t pairs,
                spec::RopePairs kind) {
  const bool interleaved = kind == spec::RopePairs::kInterleaved;
  for (int64_t i = 0; i < pairs; ++i) {
    float& first = interleaved ? x[2 * i] : x[i];
    float& second = interleaved ? x[2 * i + 1] : x[pairs + i];
    const double a = first;
    const double b = second;
    first = static_cast<float>(a * cosines[i] - b * sines[i]);
    second = static_cast<float>(b * cosines[i] + a * sines[i]);
  }
}

}  // namespace

void Rope(tensor::ExecutionContext& context, const ops::RopeArgs& args) {
  Threads(context).ParallelFor(args.x.size(0), [&](int64_t row, int) {
    for (int64_t head = 0; head < args.x.size(1); ++head)
      RotateHead(args.x.row<float>(row) + head * args.x.stride(1), args.cosines.row<float>(row),
                 args.sines.row<float>(row), args.cosines.size(1), args.pairs);
  });
}

}  // namespace longspan::backend::reference
