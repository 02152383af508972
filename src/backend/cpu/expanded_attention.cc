// Expanded latent attention: one task per head and tile of query tokens.
#include <algorithm>
#include <numbers>

#include "backend/cpu/attention_scratch.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed.h"
#include "ops/backend.h"

namespace longspan::backend::cpu {
namespace {

// Query tokens of a tile, at most: a block of latents is expanded once for all of them, which at
// DeepSeek's sizes is worth attention of about 170 tokens.
constexpr int64_t kTileTokens = 2048;

const CpuPackedWeight& Packed(const ops::PackedWeight& weight) {
  return static_cast<const CpuPackedWeight&>(weight);
}

// What a thread needs, in 32-bit words; every part is a multiple of 64 bytes. Counted for f32.
struct ExpandedScratch {
  AttentionScratch attention;
  int64_t rank;

  static ExpandedScratch For(const ops::WorkspaceShape& shape) {
    const int64_t tokens = std::min(kTileTokens, shape.rows);
    return {{.rows = DivideUp(tokens, 16) * 16,
             .key_padded = DivideUp(shape.latent_nope_dim, 16) * 16,
             .rope_dim = shape.latent_rope_dim,
             .dim_padded = DivideUp(shape.latent_value_dim, 16) * 16},
            shape.latent_rank};
  }
  static ExpandedScratch For(const ops::ExpandedLatentAttentionArgs& args) {
    const int64_t rope = args.rope_cache.size(3);
    return For({.rows = args.tables.rows,
                .latent_rank = args.latent_cache.size(3),
                .latent_rope_dim = rope,
                .latent_nope_dim = args.queries.size(2) - rope,
                .latent_value_dim = args.out.size(2)});
  }

  int64_t words() const {
    return kAttentionKeys *
           (DivideUp(rank, 16) * 16 + attention.key_padded + attention.dim_padded + kPanelColumns);
  }
  int64_t Bytes(int threads) const {
    return attention.Bytes(threads) + tensor::Workspace::PaddedBytes(threads * words() * 4);
  }

  void Divide(float* words, ExpandedTile& tile) const {
    tile.rows = reinterpret_cast<char*>(words);
    words += kAttentionKeys * (DivideUp(rank, 16) * 16);
    tile.keys = reinterpret_cast<char*>(words);
    words += kAttentionKeys * attention.key_padded;
    tile.values = reinterpret_cast<char*>(words);
    words += kAttentionKeys * attention.dim_padded;
    tile.partial_sums = words;
  }
};

// Expanded rows of a block, as a cache of one page.
PagedRows BlockRows(const char* rows, int64_t dim) {
  static constexpr int32_t kOnlyPage = 0;
  PagedRows block;
  block.cache = rows;
  block.dim = dim;
  block.page_size = kAttentionKeys;
  block.pages = &kOnlyPage;
  return block;
}

// Everything of a tile that does not depend on the tile.
ExpandedTile CommonTile(const ops::ExpandedLatentAttentionArgs& args) {
  const int64_t element = tensor::SizeOf(args.out.dtype());
  ExpandedTile tile;
  AttentionTile& attention = tile.attention;
  attention.query_token_stride = attention.rope_query_token_stride =
      args.queries.stride(0) * element;
  attention.out_token_stride = args.out.stride(0) * element;
  attention.group = 1;
  attention.head_dim = args.out.size(2);
  attention.scale_log2 = static_cast<float>(args.scale * std::numbers::log2e);
  attention.block_keys = kAttentionKeys;
  tile.panel_words =
      CpuPackedWeight::Steps(args.latent_cache.size(3), args.queries.dtype()) * kPanelColumns;
  return tile;
}

// Every tile expands all its keys: tokens are parted only as far as threads would have nothing to
// do. Results do not depend on it.
int64_t TileTokens(int64_t rows, int64_t heads, int threads) {
  int64_t tokens = kTileTokens;
  while (tokens > 64 && DivideUp(rows, tokens) * heads < threads) tokens /= 2;
  return tokens;
}

}  // namespace

int64_t ExpandedLatentAttentionWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  if (shape.latent_value_dim == 0) return 0;
  return ExpandedScratch::For(shape).Bytes(threads) + TokenTiles::Bytes(shape.rows);
}

void ExpandedLatentAttention(tensor::ExecutionContext& context,
                             const ops::ExpandedLatentAttentionArgs& args) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t heads = args.out.size(1);
  const int64_t element = tensor::SizeOf(args.out.dtype());
  const int64_t nope_bytes = (args.queries.size(2) - args.rope_cache.size(3)) * element;
  const ExpandedTile common = CommonTile(args);
  const auto scratch = ExpandedScratch::For(args);
  const AttentionScratch::Memory memory = scratch.attention.Take(scope, pool.threads());
  auto* words = scope.Take(tensor::DType::kF32, {pool.threads(), scratch.words()}).data<float>();
  const TokenTiles tiles(scope, tables, TileTokens(tables.rows, heads, pool.threads()));
  const auto kernel =
      ActiveKernels().expanded_attention[TypeOf(args.out)][TypeOf(args.latent_cache)];
  const int64_t tasks = tiles.count() * heads;
  pool.ParallelFor(tasks, [&](int64_t task, int thread) {
    // Backwards: the last tiles of a chunk see the most keys, and the longest tasks go first.
    const TokenTiles::Tile place = tiles.at((tasks - 1 - task) / heads);
    const int64_t head = (tasks - 1 - task) % heads;
    const CpuPackedWeight& key_weight = Packed(*args.key_weights[head]);
    const CpuPackedWeight& value_weight = Packed(*args.value_weights[head]);
    LONGSPAN_DCHECK(key_weight.compute() == args.queries.dtype() &&
                        value_weight.compute() == args.queries.dtype(),
                    "expanded_latent_attention: weights of another type");
    ExpandedTile tile = common;
    scratch.Divide(words + thread * scratch.words(), tile);
    tile.latents = PagedRowsOf(args.latent_cache, tables, place.slice, 0);
    tile.key_panels = key_weight.panel(0);
    tile.value_panels = value_weight.panel(0);
    AttentionTile& attention = tile.attention;
    attention.queries = RowAt(args.queries, place.row) + head * args.queries.stride(1) * element;
    attention.rope_queries = attention.queries + nope_bytes;
    attention.out = RowAt(args.out, place.row) + head * args.out.stride(1) * element;
    attention.tokens = place.tokens;
    attention.positions = tables.positions.data<int32_t>() + place.row;
    attention.keys = BlockRows(tile.keys, key_weight.rows());
    attention.values = BlockRows(tile.values, value_weight.rows());
    attention.rope_keys = PagedRowsOf(args.rope_cache, tables, place.slice, 0);
    scratch.attention.Divide(memory, thread, attention);
    kernel(tile);
  });
}

}  // namespace longspan::backend::cpu
