// Which tiles of a product a block takes, where only the device knows how many rows the groups
// have.
#pragma once

#include <cstdint>

#include "backend/cuda/device_types.cuh"
#include "backend/cuda/product.h"

namespace longspan::backend::cuda {

// Tiles of rows that share their features' weights in the L2 cache.
constexpr int kBand = 16;

struct Tile {
  int group;
  int64_t begin;  // of the group's rows
  int64_t count;
  int64_t row;      // first of the tile, in the group
  int64_t feature;  // first of the tile
};

// Where the rows of every group and its tiles of rows begin; in shared memory.
template <int kGroups>
struct GroupBegins {
  int rows[kGroups + 1];
  int tiles[kGroups + 1];
};

// The tiles that a block takes, in order.
template <int kRows, int kFeatures, int kGroups>
class Tiles {
 public:
  __device__ Tiles(const Product& product, int groups, const GroupBegins<kGroups>& begins)
      : product_(product),
        groups_(groups),
        begins_(begins),
        across_(static_cast<int>((product.features + kFeatures - 1) / kFeatures)),
        next_(blockIdx.x) {}

  __device__ bool Next(Tile& tile) {
    while (group_ < groups_ && next_ >= static_cast<int64_t>(begins_.tiles[group_ + 1]) * across_)
      ++group_;
    if (group_ == groups_) return false;
    const int first = begins_.tiles[group_];
    const int64_t local = next_ - static_cast<int64_t>(first) * across_;
    next_ += gridDim.x;
    const int down = begins_.tiles[group_ + 1] - first;
    const auto band = static_cast<int>(local / (int64_t{kBand} * across_));
    const int height = min(kBand, down - band * kBand);
    const auto in_band = static_cast<int>(local - static_cast<int64_t>(band) * kBand * across_);
    const bool uniform = product_.begin == nullptr;
    tile.group = group_;
    tile.begin = uniform ? 0 : begins_.rows[group_];
    tile.count = uniform ? product_.rows : begins_.rows[group_ + 1] - begins_.rows[group_];
    tile.row = static_cast<int64_t>(band * kBand + in_band % height) * kRows;
    tile.feature = static_cast<int64_t>(in_band / height) * kFeatures;
    return true;
  }

 private:
  const Product& product_;
  const int groups_;
  const GroupBegins<kGroups>& begins_;
  const int across_;
  int64_t next_;
  int group_ = 0;
};

// Fills `begins`. By one warp.
template <int kRows, int kGroups>
__device__ void FindGroups(const Product& product, int groups, GroupBegins<kGroups>& begins) {
  constexpr int kRounds = (kGroups + 31) / 32;
  const int lane = threadIdx.x % 32;
  // All at once: every wait for memory delays all tiles.
  int first[kRounds];
  int64_t rows[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int group = round * 32 + lane;
    first[round] = 0;
    rows[round] = 0;
    if (group >= groups) continue;
    if (product.begin == nullptr) {
      rows[round] = product.rows;
    } else {
      first[round] = product.begin[group];
      rows[round] = product.begin[group + 1] - first[round];
    }
  }
  int before = 0;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int group = round * 32 + lane;
    const auto tiles = static_cast<int>((rows[round] + kRows - 1) / kRows);
    int sum = tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(kWholeWarp, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (group < groups) {
      begins.tiles[group] = before + sum - tiles;
      begins.rows[group] = first[round];
      if (group == groups - 1) {
        begins.tiles[groups] = before + sum;
        begins.rows[groups] = first[round] + static_cast<int>(rows[round]);
      }
    }
    before += __shfl_sync(kWholeWarp, sum, 31);
  }
}

}  // namespace longspan::backend::cuda
