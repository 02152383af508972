#include "backend/cuda/partial_merge.cuh"
#include "backend/cuda/plain_attention.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kKeys = 32;  // of a tile: one for each lane
constexpr int kMostQueries = 32;

// Floats of shared memory for a block of so many queries.
struct Layout {
  int queries;
  int key_dim;  // of both parts
  int value_dim;
  bool own_values;  // not those of the keys

  __host__ __device__ int key_stride() const { return key_dim | 1; }
  __host__ __device__ int keys() const { return queries * key_dim; }
  __host__ __device__ int values() const { return keys() + kKeys * key_stride(); }
  __host__ __device__ int sums() const { return values() + (own_values ? kKeys * value_dim : 0); }
  __host__ __device__ int weights() const { return sums() + queries * value_dim; }
  __host__ __device__ int rows() const { return weights() + queries * kKeys; }
  __host__ __device__ int floats() const { return rows() + 3 * queries; }  // max, sum, factor
};

template <typename Query, typename Cache>
struct Block {
  const PlainArgs& args;
  Layout layout;
  float* memory;
  QueryTile tile;
  int first_head;  // where positions are selected: of the one row
  int64_t kv_head;

  struct Row {
    int32_t row;
    int32_t head;
    int32_t position;
  };
  __device__ Row RowOf(int query) const {
    const int flat = tile.first + query;
    const bool lists = args.selected != nullptr;
    const int token = lists ? tile.first : flat / args.group;
    const int head = lists ? first_head + query : flat % args.group;
    return {tile.slice_row + token, static_cast<int>(kv_head) * args.group + head,
            args.tables.positions[tile.slice_row + token]};
  }

  __device__ float* Stats(int which) const {
    return memory + layout.rows() + which * layout.queries;
  }

  __device__ void LoadQueries() const {
    const int total = tile.count * layout.key_dim;
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kThreads) {
      const Row row = RowOf(i / layout.key_dim);
      int column = i % layout.key_dim;
      const PlainPlane* plane = &args.queries;
      if (column >= plane->dim) {
        column -= plane->dim;
        plane = &args.rope_queries;
      }
      memory[i] = ToFloat(static_cast<const Query*>(
          plane->data)[row.row * plane->row_stride + row.head * plane->head_stride + column]);
    }
  }

  // Begins the sums, or takes them from the state.
  __device__ void Begin() const {
    const bool fresh = args.first_key == 0;
    const int heads = static_cast<int>(gridDim.y) * args.group;
    const int stride = 2 + layout.value_dim;
    const auto state_of = [&](int query) {
      const Row row = RowOf(query);
      return args.state + (static_cast<int64_t>(row.row) * heads + row.head) * stride;
    };
    const int total = tile.count * layout.value_dim;
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kThreads)
      memory[layout.sums() + i] =
          fresh ? 0 : state_of(i / layout.value_dim)[2 + i % layout.value_dim];
    for (int i = static_cast<int>(threadIdx.x); i < tile.count; i += kThreads) {
      Stats(0)[i] = fresh ? -INFINITY : state_of(i)[0];
      Stats(1)[i] = fresh ? 0 : state_of(i)[1];
    }
  }

  // Position of the index'th key; -1 behind the last one.
  __device__ int32_t KeyAt(int32_t index, int32_t end, const int32_t* list) const {
    if (index >= end) return -1;
    return list == nullptr ? index : list[index];
  }

  // A row of memory for every key, zeros where there is none.
  __device__ void LoadRows(const PlainPlane& plane, const int64_t* places, float* to,
                           int stride) const {
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * plane.dim; i += kThreads) {
      const int64_t place = places[i / plane.dim];
      const int column = i % plane.dim;
      to[i / plane.dim * stride + column] =
          place < 0
              ? 0
              : ToFloat(static_cast<const Cache*>(plane.data)[place * plane.row_stride + column]);
    }
  }

  // Four queries of a warp at once: they share what is read of the keys.
  __device__ void Score(const int32_t* positions) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float* key = memory + layout.keys() + lane * layout.key_stride();
    for (int first = warp; first < tile.count; first += 4 * kWarps) {
      float sums[4] = {0, 0, 0, 0};
      int offsets[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        offsets[j] = min(first + j * kWarps, tile.count - 1) * layout.key_dim;
      for (int d = 0; d < layout.key_dim; ++d) {
        const float element = key[d];
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[j] = fmaf(memory[offsets[j] + d], element, sums[j]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int query = first + j * kWarps;
        if (query >= tile.count) break;
        const bool visible = positions[lane] >= 0 &&
                             (args.selected != nullptr || positions[lane] <= RowOf(query).position);
        Weigh(query, lane, visible ? sums[j] * args.scale_log2 : -INFINITY);
      }
    }
  }

  __device__ void Weigh(int query, int lane, float score) const {
    float largest = score;
    for (int step = 16; step > 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, step));
    const float before = Stats(0)[query];
    largest = fmaxf(largest, before);
    const float base = largest == -INFINITY ? 0 : largest;
    const float weight = exp2f(score - base);
    float sum = weight;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    memory[layout.weights() + query * kKeys + lane] = weight;
    __syncwarp();
    if (lane == 0) {
      const float factor = exp2f(before - base);
      Stats(0)[query] = largest;
      Stats(1)[query] = Stats(1)[query] * factor + sum;
      Stats(2)[query] = factor;
    }
  }

  __device__ void AddValues() const {
    const int value_stride = layout.own_values ? layout.value_dim : layout.key_stride();
    const float* values = memory + (layout.own_values ? layout.values() : layout.keys());
    const int total = tile.count * layout.value_dim;
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kThreads) {
      const int query = i / layout.value_dim;
      const float* weights = memory + layout.weights() + query * kKeys;
      const float* value = values + i % layout.value_dim;
      float sum = 0;
#pragma unroll 8
      for (int key = 0; key < kKeys; ++key)
        sum = fmaf(weights[key], value[key * value_stride], sum);
      float& total_sum = memory[layout.sums() + i];
      total_sum = fmaf(total_sum, Stats(2)[query], sum);
    }
  }

  __device__ void Store() const {
    const int heads = static_cast<int>(gridDim.y) * args.group;
    const int stride = 2 + layout.value_dim;
    const int total = tile.count * layout.value_dim;
    for (int i = static_cast<int>(threadIdx.x); i < total; i += kThreads) {
      const int query = i / layout.value_dim;
      const int column = i % layout.value_dim;
      const Row row = RowOf(query);
      if (args.first_key > 0 && row.position < args.first_key) continue;
      const float sum = memory[layout.sums() + i];
      if (row.position >= args.last_key) {
        float* state = args.state + (static_cast<int64_t>(row.row) * heads + row.head) * stride;
        state[2 + column] = sum;
        if (column < 2) state[column] = Stats(column)[query];
        if (layout.value_dim == 1) state[1] = Stats(1)[query];
        continue;
      }
      static_cast<Query*>(
          args.out)[row.row * args.out_row_stride + row.head * args.out_head_stride + column] =
          FromFloat<Query>(sum * InverseOf(Stats(1)[query]));
      if (args.exp_sums != nullptr && column == 0)
        args.exp_sums[row.row * args.exp_sum_stride + row.head] =
            ExpSumOf(Stats(0)[query], Stats(1)[query]);
    }
  }
};

template <typename Query, typename Cache>
__global__ void __launch_bounds__(kThreads)
    PlainKernel(const __grid_constant__ PlainArgs args, const __grid_constant__ Layout layout) {
  extern __shared__ __align__(16) float memory[];
  __shared__ int32_t positions[kKeys];
  __shared__ int64_t places[kKeys];
  const bool lists = args.selected != nullptr;
  const int head_blocks = lists ? (args.group + layout.queries - 1) / layout.queries : 1;
  const int index = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  QueryTile tile = lists ? FindTile(args.tables, index / head_blocks, 1, 1, 1)
                         : FindTile(args.tables, index, args.group, layout.queries, 1);
  if (tile.slice < 0) return;
  const int first_head = index % head_blocks * layout.queries;
  if (lists) tile.count = min(layout.queries, args.group - first_head);
  const int last_token = lists ? tile.first : (tile.first + tile.count - 1) / args.group;
  const int32_t last_position = args.tables.positions[tile.slice_row + last_token];
  if (args.first_key > 0 && last_position < args.first_key) return;
  const int32_t* list =
      lists ? args.selected + (tile.slice_row + tile.first) * args.selected_stride : nullptr;
  const int32_t end = lists ? args.top_k : min(last_position + 1, args.last_key);
  const int32_t* page_list = args.tables.page_table + tile.slice * args.tables.page_table_stride;
  const Block<Query, Cache> block = {args, layout, memory, tile, first_head, blockIdx.y};
  block.LoadQueries();
  block.Begin();
  for (int32_t key = args.first_key; key < end; key += kKeys) {
    __syncthreads();
    if (threadIdx.x < kKeys) {
      const int32_t position = block.KeyAt(key + static_cast<int32_t>(threadIdx.x), end, list);
      positions[threadIdx.x] = position;
      int64_t place = -1;
      if (position >= 0)
        place = args.paged ? args.pages.RowOf(page_list, blockIdx.y, position)
                           : blockIdx.y * args.rows_per_head + (position - args.first_key);
      places[threadIdx.x] = place;
    }
    __syncthreads();
    if (positions[0] < 0) break;
    float* keys = memory + layout.keys();
    block.LoadRows(args.keys, places, keys, layout.key_stride());
    if (args.rope_keys.dim > 0)
      block.LoadRows(args.rope_keys, places, keys + args.keys.dim, layout.key_stride());
    if (layout.own_values)
      block.LoadRows(args.values, places, memory + layout.values(), layout.value_dim);
    __syncthreads();
    block.Score(positions);
    __syncthreads();
    block.AddValues();
  }
  __syncthreads();
  block.Store();
}

}  // namespace

void PlainAttention(tensor::ExecutionContext& context, const PlainArgs& args, int64_t kv_heads,
                    const ops::StepTables& tables) {
  constexpr int kSharedBytes = 220 * 1024;
  Layout layout = {kMostQueries, args.keys.dim + args.rope_keys.dim, args.values.dim,
                   args.values.data != args.keys.data};
  while (layout.queries > 1 && layout.floats() * 4 > kSharedBytes) layout.queries /= 2;
  LONGSPAN_CHECK(layout.floats() * 4 <= kSharedBytes, "attention: keys of {} and values of {}",
                 layout.key_dim, layout.value_dim);
  const int64_t blocks = args.selected == nullptr
                             ? TileBound(tables, args.group, layout.queries)
                             : tables.rows * ((args.group + layout.queries - 1) / layout.queries);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(kv_heads));
  WithTypes(args.query_type, args.cache_type, [&]<typename Query, typename Cache>(Query, Cache) {
    const auto kernel = PlainKernel<Query, Cache>;
    QueueOf(context).Note(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "attention");
    kernel<<<grid, kThreads, layout.floats() * 4, StreamOf(context)>>>(args, layout);
  });
  NoteLaunch(context, "attention");
}

}  // namespace longspan::backend::cuda
