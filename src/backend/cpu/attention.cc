// Attention: a step's rows cut into tiles of query tokens, one task per tile and KV head.
#include <algorithm>
#include <numbers>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "ops/backend.h"
#include "tensor/workspace.h"

namespace longspan::backend::cpu {
namespace {

using tensor::DType;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tokens of a tile: large tiles share their packed keys among more rows, small ones keep more
// threads busy. Results do not depend on it.
int64_t TileTokens(const ops::StepTables& tables, int64_t kv_heads, int64_t group, int threads) {
  int64_t rows = kAttentionRows;
  while (rows > 64 && DivideUp(tables.rows * group, rows) * kv_heads < int64_t{4} * threads)
    rows /= 2;
  return std::max<int64_t>(1, rows / group);
}

// What a thread needs, as one piece of f32 and 32-bit words; every part is a multiple of 64 bytes.
struct Scratch {
  int64_t rows;
  int64_t dim_padded;

  static Scratch For(int64_t heads, int64_t kv_heads, int64_t head_dim) {
    const int64_t group = heads / std::max<int64_t>(1, kv_heads);
    return {.rows = DivideUp(std::max(kAttentionRows, group), 16) * 16,
            .dim_padded = DivideUp(head_dim, 16) * 16};
  }

  int64_t keys() const { return dim_padded * kAttentionKeys; }
  int64_t values() const { return kAttentionKeys * dim_padded; }
  int64_t converted() const { return 16 * dim_padded; }
  int64_t sums() const { return rows * dim_padded; }
  int64_t denominators() const { return rows * 16; }
  int64_t words() const { return keys() + values() + converted() + sums() + denominators() + rows; }

  void Divide(float* words, AttentionTile& tile) const {
    const auto take = [&words](int64_t count) {
      float* taken = words;
      words += count;
      return taken;
    };
    tile.dim_padded = dim_padded;
    tile.keys = reinterpret_cast<uint32_t*>(take(keys()));
    tile.values = reinterpret_cast<uint32_t*>(take(values()));
    tile.converted = reinterpret_cast<char*>(take(converted()));
    tile.sums = take(sums());
    tile.denominators = take(denominators());
    tile.maxima = take(rows);
  }
};

// Everything of a tile that does not depend on the tile.
AttentionTile CommonTile(const ops::AttentionArgs& args) {
  const int64_t element = tensor::SizeOf(args.queries.dtype());
  AttentionTile tile;
  tile.query_token_stride = args.queries.stride(0) * element;
  tile.query_head_stride = args.queries.stride(1) * element;
  tile.out_token_stride = args.out.stride(0) * element;
  tile.out_head_stride = args.out.stride(1) * element;
  tile.group = args.queries.size(1) / args.key_cache.size(1);
  tile.head_dim = args.queries.size(2);
  tile.page_stride = args.key_cache.stride(0) * tensor::SizeOf(args.key_cache.dtype());
  tile.page_size = args.key_cache.size(2);
  tile.scale_log2 = static_cast<float>(args.scale * std::numbers::log2e);
  return tile;
}

}  // namespace

int64_t AttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  using tensor::Workspace;
  const Scratch scratch = Scratch::For(shape.heads, shape.kv_heads, shape.head_dim);
  return Workspace::PaddedBytes(threads * scratch.words() * 4) +
         Workspace::PaddedBytes(scratch.dim_padded * 4) +
         Workspace::PaddedBytes((shape.rows + 1) * 8);
}

void Attention(tensor::ExecutionContext& context, const ops::AttentionArgs& args) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t kv_heads = args.key_cache.size(1);
  const Scratch scratch = Scratch::For(args.queries.size(1), kv_heads, args.queries.size(2));
  auto* words = scope.Take(DType::kF32, {pool.threads(), scratch.words()}).data<float>();
  auto* zeros = scope.Take(DType::kF32, {scratch.dim_padded}).data<float>();
  std::fill_n(zeros, scratch.dim_padded, 0.0f);

  AttentionTile common = CommonTile(args);
  common.zeros = reinterpret_cast<const char*>(zeros);
  const int64_t tile_tokens = TileTokens(tables, kv_heads, common.group, pool.threads());
  const auto* row_begin = tables.slice_row_begin.data<int32_t>();
  auto* tile_begin = scope.Take(DType::kI64, {tables.slices + 1}).data<int64_t>();
  tile_begin[0] = 0;
  for (int64_t slice = 0; slice < tables.slices; ++slice)
    tile_begin[slice + 1] =
        tile_begin[slice] + DivideUp(row_begin[slice + 1] - row_begin[slice], tile_tokens);

  const auto kernel = ActiveKernels().attention[TypeOf(args.queries)][TypeOf(args.key_cache)];
  const int64_t tasks = tile_begin[tables.slices] * kv_heads;
  pool.ParallelFor(tasks, [&](int64_t task, int thread) {
    // Backwards: the last tiles of a chunk see the most keys, and the longest tasks go first.
    const int64_t index = (tasks - 1 - task) / kv_heads;
    const int64_t kv_head = (tasks - 1 - task) % kv_heads;
    const int64_t slice =
        std::upper_bound(tile_begin, tile_begin + tables.slices + 1, index) - tile_begin - 1;
    const int64_t row = row_begin[slice] + (index - tile_begin[slice]) * tile_tokens;
    AttentionTile tile = common;
    tile.queries = RowAt(args.queries, row) + kv_head * tile.group * tile.query_head_stride;
    tile.out = RowAt(args.out, row) + kv_head * tile.group * tile.out_head_stride;
    tile.tokens = std::min<int64_t>(tile_tokens, row_begin[slice + 1] - row);
    tile.first_position = tables.positions.data<int32_t>()[row];
    const int64_t head_bytes =
        kv_head * args.key_cache.stride(1) * tensor::SizeOf(args.key_cache.dtype());
    tile.key_cache = static_cast<const char*>(args.key_cache.raw()) + head_bytes;
    tile.value_cache = static_cast<const char*>(args.value_cache.raw()) + head_bytes;
    tile.pages = tables.page_table.row<int32_t>(slice);
    scratch.Divide(words + thread * scratch.words(), tile);
    kernel(tile);
  });
}

}  // namespace longspan::backend::cpu
