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

// The tiles that a block takes, in order.
template <int kRows, int kFeatures>
class Tiles {
 public:
  __device__ Tiles(const Product& product, int groups, const int* tile_begin)
      : product_(product),
        groups_(groups),
        tile_begin_(tile_begin),
        across_(static_cast<int>((product.features + kFeatures - 1) / kFeatures)),
        next_(blockIdx.x) {}

  __device__ bool Next(Tile& tile) {
    while (group_ < groups_ && next_ >= static_cast<int64_t>(tile_begin_[group_ + 1]) * across_)
      ++group_;
    if (group_ == groups_) return false;
    const auto local =
        static_cast<int>(next_ - static_cast<int64_t>(tile_begin_[group_]) * across_);
    next_ += gridDim.x;
    const int down = tile_begin_[group_ + 1] - tile_begin_[group_];
    const int band = local / (kBand * across_);
    const int height = min(kBand, down - band * kBand);
    const int in_band = local - band * kBand * across_;
    tile.group = group_;
    tile.begin = product_.begin == nullptr ? 0 : product_.begin[group_];
    tile.count =
        product_.begin == nullptr ? product_.rows : product_.begin[group_ + 1] - tile.begin;
    tile.row = static_cast<int64_t>(band * kBand + in_band % height) * kRows;
    tile.feature = static_cast<int64_t>(in_band / height) * kFeatures;
    return true;
  }

 private:
  const Product& product_;
  const int groups_;
  const int* tile_begin_;
  const int across_;
  int64_t next_;
  int group_ = 0;
};

// tile_begin[g]: tiles of rows of all groups before g. By one warp.
template <int kRows>
__device__ void CountTiles(const Product& product, int groups, int* tile_begin) {
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int first = 0; first < groups; first += 32) {
    const int group = first + lane;
    int tiles = 0;
    if (group < groups) {
      const int64_t rows =
          product.begin == nullptr ? product.rows : product.begin[group + 1] - product.begin[group];
      tiles = static_cast<int>((rows + kRows - 1) / kRows);
    }
    int sum = tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(kWholeWarp, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (group < groups) tile_begin[group] = before + sum - tiles;
    before += __shfl_sync(kWholeWarp, sum, 31);
  }
  if (lane == 0) tile_begin[groups] = before;
}

}  // namespace longspan::backend::cuda
