// Which experts a row goes to: a warp for every row. What is compared is the logits themselves, or
// in double, so that ties and near-ties fall as on other backends.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/logits.cuh"
#include "backend/cuda/selection.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kWarps = 4;  // rows of a block

struct RouterRows {
  const float* logits;
  int64_t logits_stride;
  int64_t rows;
  int experts;
  const float* bias;  // or null
  int groups;
  int groups_kept;
  bool sigmoid;
  bool normalize;
  float scale;
  int32_t* ids;
  int64_t ids_stride;
  float* weights;
  int64_t weights_stride;
  int choices;
};

// A row's values in shared memory, of which lane l looks at l, l + 32, ...; what was taken is not
// taken again.
class Choices {
 public:
  __device__ Choices(const double* values, int size, uint8_t* taken)
      : values_(values), size_(size), taken_(taken) {
    for (int i = threadIdx.x % 32; i < size; i += 32) taken_[i] = 0;
    __syncwarp();
  }

  // The largest that is left, ties to the lower index.
  __device__ int TakeLargest() {
    Best<double> best;
    for (int i = threadIdx.x % 32; i < size_; i += 32)
      if (taken_[i] == 0) best.Take(values_[i], i);
    best = BestOfWarp(best);
    __syncwarp();
    if (threadIdx.x % 32 == 0) taken_[best.index] = 1;
    __syncwarp();
    return best.index;
  }
  __device__ bool taken(int index) const { return taken_[index] != 0; }

 private:
  const double* values_;
  int size_;
  uint8_t* taken_;
};

// What a warp has in shared memory.
struct RowScratch {
  double* values;  // [experts]
  double* groups;  // [groups]
  uint8_t* taken;  // [experts]

  __host__ __device__ static size_t Bytes(int experts, int groups) {
    return (static_cast<size_t>(experts) + groups) * sizeof(double) + (experts + 7) / 8 * 8;
  }
  __device__ RowScratch(uint8_t* shared, int experts, int group_count)
      : values(reinterpret_cast<double*>(shared)),
        groups(values + experts),
        taken(reinterpret_cast<uint8_t*>(groups + group_count)) {}
};

__device__ double Sigmoid(float logit) {
  return 1.0 / (1.0 + exp(-static_cast<double>(Logit(logit))));
}

__device__ void RouteSoftmax(const RouterRows& p, int64_t row, const RowScratch& scratch) {
  const float* logits = p.logits + row * p.logits_stride;
  const int lane = threadIdx.x % 32;
  for (int i = lane; i < p.experts; i += 32) scratch.values[i] = Logit(logits[i]);
  __syncwarp();
  Choices choices(scratch.values, p.experts, scratch.taken);
  double largest = 0;
  double chosen_sum = 0;
  for (int choice = 0; choice < p.choices; ++choice) {
    const int expert = choices.TakeLargest();
    if (choice == 0) largest = scratch.values[expert];
    const double relative = exp(scratch.values[expert] - largest);
    chosen_sum += relative;
    if (lane == 0) p.ids[row * p.ids_stride + choice] = expert;
  }
  double sum = chosen_sum;
  if (!p.normalize) {
    sum = 0;
    for (int i = lane; i < p.experts; i += 32) sum += exp(scratch.values[i] - largest);
    sum = WarpSum(sum);
  }
  __syncwarp();
  for (int choice = lane; choice < p.choices; choice += 32) {
    const int expert = p.ids[row * p.ids_stride + choice];
    const double relative = exp(scratch.values[expert] - largest);
    p.weights[row * p.weights_stride + choice] = static_cast<float>(relative / sum * p.scale);
  }
}

// The same for at most 32 * kPerLane experts and 32 choices, in registers: lane l has experts l, l
// + 32, ..., and afterwards choice l.
template <int kPerLane>
__device__ void RouteSoftmaxInRegisters(const RouterRows& p, int64_t row) {
  constexpr uint32_t kTaken = 0;  // below the keys of all values
  const float* logits = p.logits + row * p.logits_stride;
  const int lane = threadIdx.x % 32;
  uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    keys[i] = expert < p.experts ? KeyOf(Logit(logits[expert])) : kTaken;
  }
  double all = 0;
  double largest = 0;
  double chosen = 0;  // this lane's
  int expert = 0;
  for (int choice = 0; choice < p.choices; ++choice) {
    uint32_t best = kTaken;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = max(best, keys[i]);
    best = __reduce_max_sync(kWholeWarp, best);
    if (choice == 0) {
      largest = ValueOf(best);
      if (!p.normalize) {
#pragma unroll
        for (int i = 0; i < kPerLane; ++i)
          if (keys[i] != kTaken) all += exp(ValueOf(keys[i]) - largest);
      }
    }
    unsigned index = ~0u;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i)
      if (keys[i] == best) index = static_cast<unsigned>(lane + 32 * i);
    index = __reduce_min_sync(kWholeWarp, index);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (index == static_cast<unsigned>(lane + 32 * i)) keys[i] = kTaken;
    if (lane == choice) {
      expert = static_cast<int>(index);
      chosen = ValueOf(best);
    }
  }
  const bool has = lane < p.choices;
  const double relative = has ? exp(chosen - largest) : 0.0;
  const double sum = WarpSum(p.normalize ? relative : all);
  if (!has) return;
  p.ids[row * p.ids_stride + lane] = expert;
  p.weights[row * p.weights_stride + lane] = static_cast<float>(relative / sum * p.scale);
}

// Takes the experts of all groups but the best out of the choice.
__device__ void KeepBestGroups(const RouterRows& p, const RowScratch& scratch) {
  const int lane = threadIdx.x % 32;
  const int size = p.experts / p.groups;
  for (int group = lane; group < p.groups; group += 32) {
    double best = kMinusInfinity;
    double second = kMinusInfinity;
    for (int i = 0; i < size; ++i) {
      const double claim = scratch.values[group * size + i];
      second = fmax(second, fmin(best, claim));
      best = fmax(best, claim);
    }
    scratch.groups[group] = size == 1 ? best : best + second;
  }
  __syncwarp();
  Choices kept(scratch.groups, p.groups, scratch.taken);
  for (int i = 0; i < p.groups_kept; ++i) kept.TakeLargest();
  for (int i = lane; i < p.experts; i += 32)
    if (!kept.taken(i / size)) scratch.values[i] = kMinusInfinity;
  __syncwarp();
}

__device__ void RouteSigmoid(const RouterRows& p, int64_t row, const RowScratch& scratch) {
  const float* logits = p.logits + row * p.logits_stride;
  const int lane = threadIdx.x % 32;
  for (int i = lane; i < p.experts; i += 32)
    scratch.values[i] = Sigmoid(logits[i]) + (p.bias == nullptr ? 0.0 : p.bias[i]);
  __syncwarp();
  KeepBestGroups(p, scratch);
  Choices choices(scratch.values, p.experts, scratch.taken);
  double sum = 1e-20;
  for (int choice = 0; choice < p.choices; ++choice) {
    const int expert = choices.TakeLargest();
    sum += Sigmoid(logits[expert]);
    if (lane == 0) p.ids[row * p.ids_stride + choice] = expert;
  }
  const double factor = p.normalize ? p.scale / sum : p.scale;
  __syncwarp();
  for (int choice = lane; choice < p.choices; choice += 32) {
    const int expert = p.ids[row * p.ids_stride + choice];
    p.weights[row * p.weights_stride + choice] =
        static_cast<float>(Sigmoid(logits[expert]) * factor);
  }
}

__global__ void __launch_bounds__(kWarps * 32) RouterKernel(const RouterRows p) {
  extern __shared__ uint8_t shared[];
  const int warp = threadIdx.x / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= p.rows) return;
  if (!p.sigmoid && p.choices <= 32 && p.experts <= 256) {
    if (p.experts <= 128)
      RouteSoftmaxInRegisters<4>(p, row);
    else
      RouteSoftmaxInRegisters<8>(p, row);
    return;
  }
  const RowScratch scratch(shared + warp * RowScratch::Bytes(p.experts, p.groups), p.experts,
                           p.groups);
  if (p.sigmoid)
    RouteSigmoid(p, row, scratch);
  else
    RouteSoftmax(p, row, scratch);
}

}  // namespace

void Router(ExecutionContext& context, const ops::RouterArgs& args) {
  const int64_t rows = args.logits.size(0);
  if (rows == 0) return;
  const RouterRows params = {.logits = args.logits.data<float>(),
                             .logits_stride = args.logits.stride(0),
                             .rows = rows,
                             .experts = static_cast<int>(args.logits.size(1)),
                             .bias = args.bias.empty() ? nullptr : args.bias.data<float>(),
                             .groups = static_cast<int>(args.groups),
                             .groups_kept = static_cast<int>(args.groups_kept),
                             .sigmoid = args.scoring == spec::ExpertScoring::kSigmoid,
                             .normalize = args.normalize_weights,
                             .scale = args.scale,
                             .ids = args.expert_ids.data<int32_t>(),
                             .ids_stride = args.expert_ids.stride(0),
                             .weights = args.expert_weights.data<float>(),
                             .weights_stride = args.expert_weights.stride(0),
                             .choices = static_cast<int>(args.expert_ids.size(1))};
  const size_t shared = kWarps * RowScratch::Bytes(params.experts, params.groups);
  LONGSPAN_CHECK(shared <= size_t{48} << 10, "router: {} experts are too many", params.experts);
  RouterKernel<<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kWarps * 32, shared,
                 StreamOf(context)>>>(params);
  NoteLaunch(context, "router");
}

}  // namespace longspan::backend::cuda
