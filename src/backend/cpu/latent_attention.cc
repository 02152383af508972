// Latent attention: attention with one KV head, whose values are the first part of its keys.
#include <algorithm>
#include <numbers>

#include "backend/cpu/attention_tasks.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "ops/backend.h"

namespace longspan::backend::cpu {
namespace {

// How a step becomes tasks: tokens of a tile, and heads of a task. Tasks of one tile read the same
// latents, so that heads are parted only where there are too few tiles for the threads, and too few
// segments of a context. Results do not depend on either.
struct TaskShape {
  int64_t tokens;
  int64_t heads;

  static TaskShape For(const ops::LatentAttentionArgs& args, const int32_t* positions,
                       int threads) {
    constexpr int64_t kFewestHeads = 8;
    const int64_t heads = args.out.size(1);
    const int64_t step_rows = args.tables.rows * heads;
    int64_t rows = kAttentionRows;
    while (rows > 64 && DivideUp(step_rows, rows) < int64_t{4} * threads) rows /= 2;
    // Rows with lists of their own have no keys in common.
    const int64_t tokens = args.selected.empty() ? std::max<int64_t>(1, rows / heads) : 1;
    const int64_t keys = *std::max_element(positions, positions + args.tables.rows) + int64_t{1};
    const bool decodes = args.tables.rows == args.tables.slices;
    const int64_t segments = decodes ? DivideUp(keys, SegmentKeys(kAttentionKeys, 0)) : 1;
    int64_t parts = 1;
    while (DivideUp(args.tables.rows, tokens) * parts * segments < threads &&
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

// Of every row: its place in what it attends to, the sequence or its list.
const int32_t* LastPositions(tensor::ExecutionContext& context, tensor::Workspace::Scope& scope,
                             const ops::LatentAttentionArgs& args) {
  if (args.selected.empty()) return args.tables.positions.data<int32_t>();
  const int64_t rows = args.tables.rows;
  const int64_t most = args.selected.size(1);
  auto* last = scope.Take(tensor::DType::kI32, {rows}).data<int32_t>();
  ForRows(context, rows, most, [&](int64_t row) {
    const auto* list = args.selected.row<int32_t>(row);
    last[row] = static_cast<int32_t>(std::find(list, list + most, -1) - list - 1);
  });
  return last;
}

}  // namespace

int64_t LatentAttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  if (shape.latent_rank == 0) return 0;
  const auto scratch = AttentionScratch::For(shape.heads, shape.latent_rank, shape.latent_rope_dim);
  return AttentionTasks::Bytes(threads, scratch, shape.heads) + TokenTiles::Bytes(shape.rows) +
         tensor::Workspace::PaddedBytes(shape.rows * 4);
}

void LatentAttention(tensor::ExecutionContext& context, const ops::LatentAttentionArgs& args) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t heads = args.out.size(1);
  const AttentionTile common = CommonTile(args);
  const auto scratch = AttentionScratch::For(heads, common.head_dim, args.rope_queries.size(2));
  const AttentionTasks attention(scope, pool, scratch, heads);
  const int32_t* positions = LastPositions(context, scope, args);
  const TaskShape shape = TaskShape::For(args, positions, pool.threads());
  const int64_t parts = DivideUp(heads, shape.heads);
  const TokenTiles tiles(scope, tables, shape.tokens);
  const int64_t tasks = tiles.count() * parts;
  // Backwards: the last tiles of a chunk see the most keys, and the longest tasks go first.
  const auto make = [&](int64_t task) {
    const TokenTiles::Tile place = tiles.at((tasks - 1 - task) / parts);
    AttentionTile tile = common;
    tile.first_row = place.row;
    tile.first_head = (tasks - 1 - task) % parts * shape.heads;
    tile.queries = RowAt(args.latent_queries, place.row) + tile.first_head * tile.query_head_stride;
    tile.rope_queries =
        RowAt(args.rope_queries, place.row) + tile.first_head * tile.rope_query_head_stride;
    tile.out = RowAt(args.out, place.row) + tile.first_head * tile.out_head_stride;
    tile.tokens = place.tokens;
    tile.group = std::min(shape.heads, heads - tile.first_head);
    tile.positions = positions + place.row;
    tile.keys = PagedRowsOf(args.latent_cache, tables, place.slice, 0);
    tile.rope_keys = PagedRowsOf(args.rope_cache, tables, place.slice, 0);
    if (!args.selected.empty())
      tile.keys.selected = tile.rope_keys.selected = args.selected.row<int32_t>(place.row);
    tile.values = tile.keys;
    return tile;
  };
  const KernelTable& kernels = ActiveKernels();
  attention.Run(tasks, kernels.attention[TypeOf(args.out)][TypeOf(args.latent_cache)],
                kernels.write_attention[TypeOf(args.out)], make,
                [&](const AttentionTile& tile) { WriteExpSums(tile, args.out, args.exp_sums); });
}

}  // namespace longspan::backend::cpu
