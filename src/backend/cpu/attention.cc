// Attention: a step's rows cut into tiles of query tokens, one task per tile and KV head.
#include <algorithm>
#include <numbers>

#include "backend/cpu/attention_tasks.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "ops/backend.h"

namespace longspan::backend::cpu {
namespace {

// Tokens of a tile: large tiles share their packed keys among more rows, small ones keep more
// threads busy. Results do not depend on it.
int64_t TileTokens(const ops::StepTables& tables, int64_t kv_heads, int64_t group, int threads) {
  int64_t rows = kAttentionRows;
  while (rows > 64 && DivideUp(tables.rows * group, rows) * kv_heads < int64_t{4} * threads)
    rows /= 2;
  return std::max<int64_t>(1, rows / group);
}

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
  tile.scale_log2 = static_cast<float>(args.scale * std::numbers::log2e);
  return tile;
}

}  // namespace

int64_t AttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  const int64_t group = shape.heads / std::max<int64_t>(1, shape.kv_heads);
  return AttentionTasks::Bytes(threads, AttentionScratch::For(group, shape.head_dim, 0), group) +
         TokenTiles::Bytes(shape.rows);
}

void Attention(tensor::ExecutionContext& context, const ops::AttentionArgs& args) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t kv_heads = args.key_cache.size(1);
  const AttentionTile common = CommonTile(args);
  const auto scratch = AttentionScratch::For(common.group, common.head_dim, 0);
  const AttentionTasks attention(scope, pool, scratch, common.group);
  const TokenTiles tiles(scope, tables, TileTokens(tables, kv_heads, common.group, pool.threads()));
  const int64_t tasks = tiles.count() * kv_heads;
  // Backwards: the last tiles of a chunk see the most keys, and the longest tasks go first.
  const auto make = [&](int64_t task) {
    const TokenTiles::Tile place = tiles.at((tasks - 1 - task) / kv_heads);
    const int64_t kv_head = (tasks - 1 - task) % kv_heads;
    AttentionTile tile = common;
    tile.first_row = place.row;
    tile.first_head = kv_head * tile.group;
    tile.queries = RowAt(args.queries, place.row) + tile.first_head * tile.query_head_stride;
    tile.out = RowAt(args.out, place.row) + tile.first_head * tile.out_head_stride;
    tile.tokens = place.tokens;
    tile.positions = tables.positions.data<int32_t>() + place.row;
    tile.keys = PagedRowsOf(args.key_cache, tables, place.slice, kv_head);
    tile.values = PagedRowsOf(args.value_cache, tables, place.slice, kv_head);
    return tile;
  };
  const KernelTable& kernels = ActiveKernels();
  attention.Run(tasks, kernels.attention[TypeOf(args.queries)][TypeOf(args.key_cache)],
                kernels.write_attention[TypeOf(args.queries)], make,
                [&](const AttentionTile& tile) { WriteExpSums(tile, args.out, args.exp_sums); });
}

}  // namespace longspan::backend::cpu
