// Products on Hopper's matrix unit, for groups of rows of which only the device knows how many
// there are.
//
// There is a block for every multiprocessor, and they deal out the tiles of all groups. One
// warpgroup brings tiles of 64 columns into shared memory, kStages ahead: the weight's by the copy
// engine, the rows' by cp.async, which can gather. The others multiply, 64 rows each, and write. A
// row's sums are over its columns in steps of 16, in order, whichever tile it is in.
#include <algorithm>

#include "backend/cuda/barrier.cuh"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/packed_weight.h"
#include "backend/cuda/product.h"
#include "backend/cuda/product_tiles.cuh"
#include "backend/cuda/stream.h"
#include "backend/cuda/wgmma.cuh"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kWarpgroup = 128;

template <int kGroups>
struct MatrixProduct {
  TensorMap maps[kGroups];
  Product product;
  int groups;
};

// kRows x kFeatures of the result at once.
template <int kRows, int kFeatures>
struct TileShape {
  static constexpr int kMultipliers = kRows / 64;  // warpgroups
  static constexpr int kThreads = (kMultipliers + 1) * kWarpgroup;
  static constexpr int kRowBytes = kRows * kSwizzledColumns * 2;
  static constexpr int kWeightBytes = kFeatures * kSwizzledColumns * 2;
  static constexpr int kStageBytes = kRowBytes + kWeightBytes;
  static constexpr int kStages = 196608 / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
};

// A ring of stages: which one is next, and the parity of its barriers.
template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

template <int kRows, int kFeatures>
struct Stages {
  using Shape = TileShape<kRows, kFeatures>;
  uint32_t base;     // address in shared memory, a multiple of 1024
  uint64_t* filled;  // [kStages]
  uint64_t* free;    // [kStages]

  __device__ uint32_t rows(int stage) const { return base + stage * Shape::kStageBytes; }
  __device__ uint32_t weight(int stage) const { return rows(stage) + Shape::kRowBytes; }
};

// What one copying thread copies of a tile's rows: a 16-byte unit, one of eight, in every 16th row.
template <int kRows>
class RowUnits {
 public:
  static constexpr int kUnits = kRows / 16;

  __device__ explicit RowUnits(const Product& product)
      : product_(product),
        unit_(static_cast<int>(threadIdx.x) % 8),
        first_row_(static_cast<int>(threadIdx.x) % kWarpgroup / 8) {}

  // Reads which rows of x the next tile has.
  __device__ void Look(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int64_t row = tile.row + first_row_ + i * 16;
      const int64_t place = tile.begin + row;
      next_[i] = 0;
      if (row < tile.count)
        next_[i] = product_.source_rows == nullptr ? static_cast<int32_t>(place)
                                                   : product_.source_rows[place];
    }
    next_used_ = static_cast<int>((tile.count - tile.row - first_row_ + 15) / 16);
  }

  // Takes the rows of the last Look.
  __device__ void Take(const Tile& tile) {
    const auto* x = static_cast<const __nv_bfloat16*>(product_.x) +
                    tile.group * product_.x_group_stride + unit_ * 8;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) sources_[i] = x + next_[i] * product_.x_stride;
    used_ = next_used_;
  }

  // Begins to copy the next 64 columns, `column` on.
  __device__ void Copy(int column, uint32_t target) {
    const int bytes = column + unit_ * 8 < product_.columns ? 16 : 0;
    CopyFrom<0>(bytes, target + SwizzledOffset(first_row_, unit_));
  }

 private:
  // Rows 16 apart are permuted alike.
  template <int kUnit>
  __device__ void CopyFrom(int bytes, uint32_t target) {
    if constexpr (kUnit < kUnits) {
      // Rows that the group has not keep what is there: it only gets into sums that nobody writes.
      if (kUnit < used_) CopyUnitTo<kUnit * 16 * 128>(target, sources_[kUnit], bytes);
      sources_[kUnit] += kSwizzledColumns;
      CopyFrom<kUnit + 1>(bytes, target);
    }
  }

  const Product& product_;
  const int unit_;
  const int first_row_;
  int32_t next_[kUnits];
  int next_used_ = 0;
  const __nv_bfloat16* sources_[kUnits];
  int used_ = 0;  // units of rows that the group has
};

template <int kRows, int kFeatures, int kGroups>
__device__ void Bring(const MatrixProduct<kGroups>& params, Tiles<kRows, kFeatures, kGroups> tiles,
                      const Stages<kRows, kFeatures>& stages) {
  using Shape = TileShape<kRows, kFeatures>;
  const Product& p = params.product;
  const int steps = static_cast<int>((p.columns + kSwizzledColumns - 1) / kSwizzledColumns);
  RowUnits<kRows> units(p);
  Ring<Shape::kStages> ring;
  Tile next;
  bool has_next = tiles.Next(next);
  if (has_next) units.Look(next);
  while (has_next) {
    const Tile tile = next;
    units.Take(tile);
    // Early, so that no tile waits for them.
    has_next = tiles.Next(next);
    if (has_next) units.Look(next);
    for (int step = 0; step < steps; ++step, ring.Advance()) {
      const int column = step * kSwizzledColumns;
      uint64_t* filled = stages.filled + ring.stage;
      WaitFor(stages.free + ring.stage, ring.parity ^ 1);
      if (threadIdx.x == 0) {
        ArriveExpecting(filled, Shape::kWeightBytes);
#pragma unroll
        for (int box = 0; box < kFeatures; box += kMapRows)
          CopyBox(stages.weight(ring.stage) + box * kSwizzledColumns * 2, params.maps + tile.group,
                  column, static_cast<int>(tile.feature) + box, filled);
      }
      units.Copy(column, stages.rows(ring.stage));
      ArriveAfterCopies(filled);
    }
  }
}

// Four threads of a quad hold two bf16 of each of four runs of eight columns; afterwards each holds
// all eight of one run.
__device__ inline void TransposeQuad(uint32_t (&words)[4]) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int pair = 0; pair < 4; pair += 2) {
    const uint32_t got = __shfl_xor_sync(kWholeWarp, quad & 1 ? words[pair] : words[pair + 1], 1);
    (quad & 1 ? words[pair] : words[pair + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(kWholeWarp, quad & 2 ? words[i] : words[i + 2], 2);
    (quad & 2 ? words[i] : words[i + 2]) = got;
  }
}

__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// A warp's 16 rows of a tile.
template <int kFeatures, typename Out>
__device__ void Write(const Product& p, const Tile& tile, float (&sums)[kFeatures / 2]) {
  constexpr bool kIsBf16 = sizeof(Out) == 2;
  const int lane = threadIdx.x % 32;
  const int quad = lane % 4;
  const int64_t first_row = tile.row + (threadIdx.x / kWarpgroup - 1) * 64 +
                            threadIdx.x % kWarpgroup / 32 * 16 + lane / 4;
  auto* out = static_cast<Out*>(p.out) + tile.group * p.out_group_stride;
  const bool aligned =
      reinterpret_cast<uintptr_t>(out) % 16 == 0 && p.out_stride % 8 == 0 && p.features % 8 == 0;
  if (p.bias != nullptr) {
#pragma unroll
    for (int run = 0; run < kFeatures / 8; ++run) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t feature = tile.feature + run * 8 + quad * 2 + i;
        const float bias = feature < p.features ? p.bias[feature] : 0.0f;
        sums[4 * run + i] += bias;
        sums[4 * run + 2 + i] += bias;
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first_row + half * 8;
    const bool inside = row < tile.count;
    Out* to = out + (tile.begin + (inside ? row : 0)) * p.out_stride + tile.feature;
#pragma unroll
    for (int run = 0; run < kFeatures / 8; run += 4) {
      if (aligned && kIsBf16) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = PackBf16(sums[4 * (run + i) + 2 * half], sums[4 * (run + i) + 2 * half + 1]);
        TransposeQuad(words);
        if (inside && tile.feature + (run + quad) * 8 < p.features)
          *reinterpret_cast<uint4*>(to + (run + quad) * 8) =
              make_uint4(words[0], words[1], words[2], words[3]);
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = (run + i) * 8 + quad * 2;
        const float low = sums[4 * (run + i) + 2 * half];
        const float high = sums[4 * (run + i) + 2 * half + 1];
        if (!inside) continue;
        if (aligned && tile.feature + column < p.features) {
          *reinterpret_cast<float2*>(to + column) = make_float2(low, high);
        } else if (!aligned) {
          if (tile.feature + column < p.features) Store(to + column, low);
          if (tile.feature + column + 1 < p.features) Store(to + column + 1, high);
        }
      }
    }
  }
}

// Of the multiplying warpgroups alone.
template <int kThreads>
__device__ void SyncMultipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

template <int kRows, int kFeatures, typename Out, int kGroups>
__device__ void MultiplyTiles(const Product& p, Tiles<kRows, kFeatures, kGroups> tiles,
                              const Stages<kRows, kFeatures>& stages) {
  using Shape = TileShape<kRows, kFeatures>;
  const int multiplier = threadIdx.x / kWarpgroup - 1;
  const int steps = static_cast<int>((p.columns + kSwizzledColumns - 1) / kSwizzledColumns);
  const bool leads = threadIdx.x % 32 == 0;
  Ring<Shape::kStages> ring;
  Tile tile;
  while (tiles.Next(tile)) {
    // Side by side: one that is ahead holds up the stages that the other has yet to read.
    if constexpr (Shape::kMultipliers > 1) SyncMultipliers<Shape::kMultipliers * kWarpgroup>();
    float sums[kFeatures / 2];
#pragma unroll
    for (int i = 0; i < kFeatures / 2; ++i) sums[i] = 0.0f;
    int last = -1;  // the stage that products in flight may still read
    for (int step = 0; step < steps; ++step, ring.Advance()) {
      WaitFor(stages.filled + ring.stage, ring.parity);
      FenceForMatrixUnit();
      const uint64_t rows =
          SwizzledOperand(stages.rows(ring.stage) + multiplier * 64 * kSwizzledColumns * 2);
      const uint64_t weight = SwizzledOperand(stages.weight(ring.stage));
      PinSums(sums);
      FenceSums();
#pragma unroll
      for (int part = 0; part < kSwizzledColumns / 16; ++part)
        MultiplyAdd(sums, rows + part * 2, weight + part * 2, true);
      CommitProducts();
      PinSums(sums);
      WaitForProducts<1>();
      if (last >= 0 && leads) Arrive(stages.free + last);
      last = ring.stage;
    }
    WaitForProducts<0>();
    PinSums(sums);
    if (last >= 0 && leads) Arrive(stages.free + last);
    Write<kFeatures, Out>(p, tile, sums);
  }
}

template <int kRows, int kFeatures, typename Out, int kGroups>
__global__ void __launch_bounds__(TileShape<kRows, kFeatures>::kThreads, 1)
    TensorProductKernel(const __grid_constant__ MatrixProduct<kGroups> params) {
  using Shape = TileShape<kRows, kFeatures>;
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t filled[Shape::kStages];
  __shared__ uint64_t free[Shape::kStages];
  __shared__ GroupBegins<kGroups> begins;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      // Every copying thread, and the one that calls the copy engine again.
      InitBarrier(filled + stage, kWarpgroup + 1);
      InitBarrier(free + stage, Shape::kMultipliers * 4);
    }
    FenceNewBarriers();
  }
  if (threadIdx.x / 32 == 1) FindGroups<kRows>(params.product, params.groups, begins);
  __syncthreads();
  const Tiles<kRows, kFeatures, kGroups> tiles(params.product, params.groups, begins);
  const Stages<kRows, kFeatures> stages = {(SharedAddress(shared) + 1023) / 1024 * 1024, filled,
                                           free};
  // The multipliers get the registers that the copying warpgroup needs not: 56 + 2 * 224 of 3 *
  // 168.
  if (threadIdx.x < kWarpgroup) {
    if constexpr (Shape::kMultipliers == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    Bring(params, tiles, stages);
  } else {
    if constexpr (Shape::kMultipliers == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    MultiplyTiles<kRows, kFeatures, Out>(params.product, tiles, stages);
  }
}

template <int kRows, int kFeatures, typename Out, int kGroups>
void Launch(tensor::ExecutionContext& context, const Product& product,
            std::span<const ops::PackedWeight* const> weights) {
  using Shape = TileShape<kRows, kFeatures>;
  MatrixProduct<kGroups> params;
  params.product = product;
  params.groups = static_cast<int>(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) params.maps[i] = AsCuda(*weights[i]).map();
  const auto kernel = TensorProductKernel<kRows, kFeatures, Out, kGroups>;
  // Of the current device alone, so every time.
  QueueOf(context).Note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             Shape::kSharedBytes),
                        "product");
  kernel<<<MultiprocessorsOf(context), Shape::kThreads, Shape::kSharedBytes, StreamOf(context)>>>(
      params);
}

template <int kRows, int kFeatures>
void LaunchFor(tensor::ExecutionContext& context, const Product& product,
               std::span<const ops::PackedWeight* const> weights, DType out) {
  if (out == DType::kF32 && weights.size() == 1)
    Launch<kRows, kFeatures, float, 1>(context, product, weights);
  else if (weights.size() == 1)
    Launch<kRows, kFeatures, __nv_bfloat16, 1>(context, product, weights);
  else
    Launch<kRows, kFeatures, __nv_bfloat16, kProductGroups>(context, product, weights);
}

}  // namespace

void MultiplyOnMatrixUnit(tensor::ExecutionContext& context, const Product& product,
                          std::span<const ops::PackedWeight* const> weights, DType out) {
  // Large tiles reuse what they read; small ones waste less where groups have few rows, and fill
  // the multiprocessors where there is little to do. The sums are the same.
  const auto groups = static_cast<int64_t>(weights.size());
  const int64_t rows_of_group = product.begin == nullptr ? product.rows : product.rows / groups;
  const int64_t large_tiles =
      groups * ((rows_of_group + 127) / 128) * ((product.features + 255) / 256);
  if (rows_of_group > 96 && large_tiles >= MultiprocessorsOf(context))
    LaunchFor<128, 256>(context, product, weights, out);
  else
    LaunchFor<64, 128>(context, product, weights, out);
}

}  // namespace longspan::backend::cuda
