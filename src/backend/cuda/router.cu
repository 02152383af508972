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

// The sum of a group's two largest claims, or its only one.
__device__ double GroupClaim(const double* claims, int size) {
  double best = kMinusInfinity;
  double second = kMinusInfinity;
  for (int i = 0; i < size; ++i) {
    second = fmax(second, fmin(best, claims[i]));
    best = fmax(best, claims[i]);
  }
  return size == 1 ? best : best + second;
}

// Takes the experts of all groups but the best out of the choice.
__device__ void KeepBestGroups(const RouterRows& p, const RowScratch& scratch) {
  const int lane = threadIdx.x % 32;
  const int size = p.experts / p.groups;
  for (int group = lane; group < p.groups; group += 32)
    scratch.groups[group] = GroupClaim(scratch.values + group * size, size);
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

// The largest of a warp.
__device__ uint32_t WarpMax(uint32_t key) { return __reduce_max_sync(kWholeWarp, key); }
__device__ uint64_t WarpMax(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 32);
  const uint32_t best = WarpMax(high);
  const uint32_t low = WarpMax(high == best ? static_cast<uint32_t>(key) : 0);
  return static_cast<uint64_t>(best) << 32 | low;
}

// The keys of at most 32 * kPerLane elements in registers: lane l has l, l + 32, ...
template <typename Key, int kPerLane>
struct WarpKeys {
  static constexpr Key kNone = 0;  // below the keys of all values
  Key keys[kPerLane];

  // Takes the largest out, ties to the lower index; every lane gets its key and index.
  __device__ int TakeLargest(Key& largest) {
    const int lane = threadIdx.x % 32;
    Key own = kNone;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) own = max(own, keys[i]);
    largest = WarpMax(own);
    unsigned index = ~0u;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i)
      if (keys[i] == largest) index = static_cast<unsigned>(lane + 32 * i);
    index = __reduce_min_sync(kWholeWarp, index);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (index == static_cast<unsigned>(lane + 32 * i)) keys[i] = kNone;
    return static_cast<int>(index);
  }
};

// RouteSoftmax for at most 32 * kPerLane experts and 32 choices, of which lane c has choice c.
template <int kPerLane>
__device__ void RouteSoftmaxInRegisters(const RouterRows& p, int64_t row) {
  const float* logits = p.logits + row * p.logits_stride;
  const int lane = threadIdx.x % 32;
  WarpKeys<uint32_t, kPerLane> left;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    left.keys[i] = expert < p.experts ? KeyOf(Logit(logits[expert])) : left.kNone;
  }
  const WarpKeys<uint32_t, kPerLane> all = left;
  double largest = 0;
  double chosen = 0;  // this lane's
  int expert = 0;
  for (int choice = 0; choice < p.choices; ++choice) {
    uint32_t key = 0;
    const int taken = left.TakeLargest(key);
    if (choice == 0) largest = ValueOf(key);
    if (lane == choice) {
      expert = taken;
      chosen = ValueOf(key);
    }
  }
  const bool has = lane < p.choices;
  const double relative = has ? exp(chosen - largest) : 0.0;
  double sum = relative;
  if (!p.normalize) {
    sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (all.keys[i] != all.kNone) sum += exp(ValueOf(all.keys[i]) - largest);
  }
  sum = WarpSum(sum);
  if (!has) return;
  p.ids[row * p.ids_stride + lane] = expert;
  p.weights[row * p.weights_stride + lane] = static_cast<float>(relative / sum * p.scale);
}

// RouteSigmoid for at most 32 * kPerLane experts, 32 groups and 32 choices.
template <int kPerLane>
__device__ void RouteSigmoidInRegisters(const RouterRows& p, int64_t row,
                                        const RowScratch& scratch) {
  const float* logits = p.logits + row * p.logits_stride;
  const int lane = threadIdx.x % 32;
  const int size = p.experts / p.groups;
  for (int expert = lane; expert < p.experts; expert += 32)
    scratch.values[expert] = Sigmoid(logits[expert]) + (p.bias == nullptr ? 0.0 : p.bias[expert]);
  __syncwarp();
  unsigned kept = ~0u;
  if (p.groups_kept < p.groups) {
    WarpKeys<uint64_t, 1> groups;
    groups.keys[0] =
        lane < p.groups ? KeyOf(GroupClaim(scratch.values + lane * size, size)) : groups.kNone;
    kept = 0;
    for (int i = 0; i < p.groups_kept; ++i) {
      uint64_t key = 0;
      kept |= 1u << groups.TakeLargest(key);
    }
  }
  WarpKeys<uint64_t, kPerLane> left;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    const bool offered = expert < p.experts && (kept >> (expert / size) & 1u) != 0;
    left.keys[i] = offered ? KeyOf(scratch.values[expert]) : left.kNone;
  }
  int expert = 0;  // this lane's
  for (int choice = 0; choice < p.choices; ++choice) {
    uint64_t key = 0;
    const int taken = left.TakeLargest(key);
    if (lane == choice) expert = taken;
  }
  const double chosen = lane < p.choices ? Sigmoid(logits[expert]) : 0.0;
  const double sum = WarpSum(chosen) + 1e-20;
  if (lane >= p.choices) return;
  const double factor = p.normalize ? p.scale / sum : p.scale;
  p.ids[row * p.ids_stride + lane] = expert;
  p.weights[row * p.weights_stride + lane] = static_cast<float>(chosen * factor);
}

// False where there are too many.
template <int kPerLane>
__device__ bool RouteInRegisters(const RouterRows& p, int64_t row, const RowScratch& scratch) {
  if (p.choices > 32 || p.groups > 32 || p.experts > 32 * kPerLane) return false;
  if (p.sigmoid)
    RouteSigmoidInRegisters<kPerLane>(p, row, scratch);
  else
    RouteSoftmaxInRegisters<kPerLane>(p, row);
  return true;
}

__global__ void __launch_bounds__(kWarps * 32) RouterKernel(const RouterRows p) {
  extern __shared__ uint8_t shared[];
  const int warp = threadIdx.x / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= p.rows) return;
  const RowScratch scratch(shared + warp * RowScratch::Bytes(p.experts, p.groups), p.experts,
                           p.groups);
  if (RouteInRegisters<4>(p, row, scratch) || RouteInRegisters<8>(p, row, scratch)) return;
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
