// Latent attention: attention with one KV head, whose values are the first part of its keys.
#include <algorithm>
#include <numbers>

#include "backend/cpu/attention_scratch.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "ops/backend.h"

namespace longspan::backend::cpu {
namespace {

// How a step becomes tasks: tokens of a tile, and heads of a task. Tasks of one tile read the same
// latents, so that heads are parted only where there are too few tiles for the threads. Results do
// not depend on either.
struct TaskShape {
  int64_t tokens;
  int64_t heads;

  static TaskShape For(const ops::LatentAttentionArgs& args, int threads) {
    constexpr int64_t kFewestHeads = 8;
    const int64_t heads = args.out.size(1);
    const int64_t step_rows = args.tables.rows * heads;
    int64_t rows = kAttentionRows;
    while (rows > 64 && DivideUp(step_rows, rows) < int64_t{4} * threads) rows /= 2;
    // Rows with lists of their own have no keys in common.
    const int64_t tokens = args.selected.empty() ? std::max<int64_t>(1, rows / heads) : 1;
    int64_t parts = 1;
    while (DivideUp(args.tables.rows, tokens) * parts < threads &&
           DivideUp(heads, 2 * parts) >= kFewestHeads)
      parts *= 2;
    return {tokens, DivideUp(heads, parts)};
  }
};

// Everything of a tile that does not depend on the tile.
AttentionTile CommonTile(const ops::LatentAttentionArgs& args) {
  const int64_t element = tensor::SizeOf(args.out.dtype());
  AttentionTile tile;
  tile.query_token_stride = args.latent_queries.stride(0) * element;
  tile.query_head_stride = args.latent_queries.stride(1) * element;
  tile.rope_query_token_stride = args.rope_queries.stride(0) * element;
  tile.rope_query_head_stride = args.rope_queries.stride(1) * element;
  tile.out_token_stride = args.out.stride(0) * element;
  tile.out_head_stride = args.out.stride(1) * element;
  tile.head_dim = args.out.size(2);
  tile.scale_log2 = static_cast<float>(args.scale * std::numbers::log2e);
  // With or without lists, so that a list of all positions changes nothing.
  tile.block_keys = kAttentionKeys;
  return tile;
}

}  // namespace

int64_t LatentAttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  if (shape.latent_rank == 0) return 0;
  return AttentionScratch::For(shape.heads, shape.latent_rank, shape.latent_rope_dim)
             .Bytes(threads) +
         TokenTiles::Bytes(shape.rows);
}

void LatentAttention(tensor::ExecutionContext& context, const ops::LatentAttentionArgs& args) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t heads = args.out.size(1);
  const AttentionTile common = CommonTile(args);
  const auto scratch = AttentionScratch::For(heads, common.head_dim, args.rope_queries.size(2));
  const AttentionScratch::Memory memory = scratch.Take(scope, pool.threads());
  const TaskShape shape = TaskShape::For(args, pool.threads());
  const int64_t parts = DivideUp(heads, shape.heads);
  const TokenTiles tiles(scope, tables, shape.tokens);
  const auto kernel = ActiveKernels().attention[TypeOf(args.out)][TypeOf(args.latent_cache)];
  const int64_t tasks = tiles.count() * parts;
  pool.ParallelFor(tasks, [&](int64_t task, int thread) {
    // Backwards: the last tiles of a chunk see the most keys, and the longest tasks go first.
    const TokenTiles::Tile place = tiles.at((tasks - 1 - task) / parts);
    const int64_t head = (tasks - 1 - task) % parts * shape.heads;
    AttentionTile tile = common;
    tile.queries = RowAt(args.latent_queries, place.row) + head * tile.query_head_stride;
    tile.rope_queries = RowAt(args.rope_queries, place.row) + head * tile.rope_query_head_stride;
    tile.out = RowAt(args.out, place.row) + head * tile.out_head_stride;
    tile.tokens = place.tokens;
    tile.group = std::min(shape.heads, heads - head);
    tile.positions = tables.positions.data<int32_t>() + place.row;
    tile.keys = PagedRowsOf(args.latent_cache, tables, place.slice, 0);
    tile.rope_keys = PagedRowsOf(args.rope_cache, tables, place.slice, 0);
    int32_t last_of_list = 0;
    if (!args.selected.empty()) {
      // The list is the sequence that the row is the end of.
      const auto* list = args.selected.row<int32_t>(place.row);
      const int64_t length = std::find(list, list + args.selected.size(1), -1) - list;
      last_of_list = static_cast<int32_t>(length - 1);
      tile.positions = &last_of_list;
      tile.keys.selected = tile.rope_keys.selected = list;
    }
    tile.values = tile.keys;
    scratch.Divide(memory, thread, tile);
    kernel(tile);
    if (!args.exp_sums.empty())
      WriteExpSums(tile, args.out, args.exp_sums.row<float>(place.row) + 2 * head,
                   args.exp_sums.stride(0));
  });
}

}  // namespace longspan::backend::cpu
