// What the op code calls of the kernels that are compiled once per instruction set.
//
// The kernels are templates over a vector type (simd_*.h) and are instantiated in one translation
// unit per instruction set (kernels_*.cc), compiled with that set's flags. Those units include only
// this header and the kernels, so that no inline function of the standard library is compiled with
// instructions that the machine may lack and then picked by the linker for the whole program.
#pragma once

#include <cstdint>

namespace longspan::backend::cpu {

// A packed matrix is cut into panels of 64 columns of the product (rows of W). A panel is stored
// step by step: 64 words of 32 bits per step, a word being one f32 or a pair of bf16 of successive
// input columns (the earlier one in the low half). Padding is zero. The layout is the same for all
// instruction sets.
constexpr int64_t kPanelColumns = 64;

// Products accumulate over at most so many steps before the accumulators rest in f32 scratch, so
// that a slice of a panel stays in the second-level cache. The chain of additions is the same with
// and without.
constexpr int64_t kStepsPerPass = 512;

// So few rows, a decoding step's, cost less than what they are multiplied with takes to come from
// memory.
constexpr int64_t kFewRows = 8;

// Query rows (tokens x heads of one group) of an attention task, and keys of a block, at most.
constexpr int64_t kAttentionRows = 512;
constexpr int64_t kAttentionKeys = 128;
// Of these rows so many at most meet a block of keys at once.
constexpr int64_t kAttentionStepRows = 24;

// Contexts are attended to in segments of about so many keys, whose sums are merged in order:
// threads may share a context, and whether they do changes no result.
constexpr int64_t kSegmentKeys = 2048;

// Floats of a row in scratch: whole lines of the cache.
constexpr int64_t PaddedFloats(int64_t elements) { return (elements + 15) / 16 * 16; }

enum ElementType : int { kFloat = 0, kBfloat = 1 };

// out = x W^T (+ bias) for some rows and one panel. The rows of `x` are those named by
// `source_rows`, or 0 .. rows - 1.
struct ProductBlock {
  const char* x = nullptr;
  int64_t x_stride = 0;  // bytes
  const int32_t* source_rows = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;  // of x
  const uint32_t* panel = nullptr;
  int64_t panel_columns = 0;    // valid ones, at most 64
  const float* bias = nullptr;  // [panel_columns] or none
  char* out = nullptr;
  int64_t out_stride = 0;  // elements
  ElementType out_type = kFloat;
  float* partial_sums = nullptr;  // [rows, 64], where columns need more than one pass
};

// What is cached of one sequence's tokens by one head.
struct PagedRows {
  const char* cache = nullptr;  // of page 0 and this head
  int64_t dim = 0;              // elements of a token
  int64_t page_stride = 0;      // bytes
  int64_t page_size = 0;
  const int32_t* pages = nullptr;
  // Token i of the run that is read lies at position selected[i]; without, at position i.
  const int32_t* selected = nullptr;

  // Scratch: 16 rows of f32, each `dim` rounded up to 16, for rows of another type; and zeros for
  // as many elements, rows that are not there.
  char* converted = nullptr;
  const char* zeros = nullptr;
};

// Of query rows that saw some of their keys: sum_j p_j v_j, the largest score, and sum_j p_j in 16
// parts, with p_j = 2^(score_j - largest). Scratch, 64-byte aligned.
struct AttentionSums {
  float* sums = nullptr;          // [rows, dim_padded]
  float* maxima = nullptr;        // [rows]
  float* denominators = nullptr;  // [rows, 16]
};

// Attention of some tokens of one sequence, in ascending positions, for the query heads of one KV
// head.
struct AttentionTile {
  static constexpr int64_t kAllSegments = -1;

  const char* queries = nullptr;   // of the first token and head
  int64_t query_token_stride = 0;  // bytes; a head follows at query_head_stride
  int64_t query_head_stride = 0;
  const char* rope_queries = nullptr;  // the second part of every query, with `rope_keys`
  int64_t rope_query_token_stride = 0;
  int64_t rope_query_head_stride = 0;
  char* out = nullptr;
  int64_t out_token_stride = 0;
  int64_t out_head_stride = 0;
  int64_t first_row = 0;   // of the step: the first token's
  int64_t first_head = 0;  // of all query heads
  int64_t tokens = 0;
  int64_t group = 0;  // query heads
  int64_t head_dim = 0;
  const int32_t* positions = nullptr;  // of the tokens

  PagedRows keys;
  PagedRows rope_keys;  // what follows on a key; dim 0: nothing
  PagedRows values;
  // Blocks of keys begin at multiples of it; at most kAttentionKeys. 0: with the pages.
  int64_t block_keys = 0;
  // Below 0: the kernel attends to all segments and writes `out`. Else to this one, and leaves its
  // sums in `result` for merge_segment and write_attention.
  int64_t segment = kAllSegments;

  float scale_log2 = 0;  // scale * log2(e): the kernel works with powers of two

  // Scratch, 64-byte aligned; dim_padded is head_dim rounded up to 16.
  uint32_t* packed_keys = nullptr;    // [steps of both parts, kAttentionKeys]
  uint32_t* packed_values = nullptr;  // [kAttentionKeys steps, dim_padded]
  AttentionSums result;
  AttentionSums segment_sums;  // of one segment, where there are several
  int64_t dim_padded = 0;
  // The same, [kAttentionStepRows, both parts of a query, each padded to PaddedFloats]: for kernels
  // without a product of bf16.
  float* wide_queries = nullptr;
};

// Keys of a block that begins with a page, or at a multiple of `block_keys`.
constexpr int64_t BlockKeys(int64_t block_keys, int64_t page_size) {
  if (block_keys > 0) return block_keys;
  return page_size <= kAttentionKeys ? kAttentionKeys / page_size * page_size : kAttentionKeys;
}

// Keys of a segment: whole blocks, and whole pages where these are larger.
constexpr int64_t SegmentKeys(int64_t block_keys, int64_t page_size) {
  const int64_t unit =
      block_keys == 0 && page_size > kAttentionKeys ? page_size : BlockKeys(block_keys, page_size);
  return (kSegmentKeys + unit - 1) / unit * unit;
}

// Attention of one head of expanded latents: `attention.keys` and `attention.values` are read from
// `keys` and `values`, which a block of latents is expanded into.
struct ExpandedTile {
  AttentionTile attention;
  PagedRows latents;
  // Packed weights of the head, panel by panel, `panel_words` apart.
  const uint32_t* key_panels = nullptr;
  const uint32_t* value_panels = nullptr;
  int64_t panel_words = 0;
  // Scratch in the compute type, 64-byte aligned.
  char* rows = nullptr;           // [kAttentionKeys, rank]
  char* keys = nullptr;           // [kAttentionKeys, nope]
  char* values = nullptr;         // [kAttentionKeys, value]
  float* partial_sums = nullptr;  // [kAttentionKeys, kPanelColumns]
};

// Scores of index selection for some query tokens of one sequence and a block of its keys:
// scores[token, key] = sum over heads of weights[head] * max(0, scale * query . key).
struct IndexBlock {
  const char* queries = nullptr;   // of the first token
  int64_t query_token_stride = 0;  // bytes
  int64_t query_head_stride = 0;
  const float* head_weights = nullptr;  // of the first token; [heads] each
  int64_t head_weights_stride = 0;      // elements
  int64_t tokens = 0;
  int64_t heads = 0;
  PagedRows keys;
  int64_t first_key = 0;
  int64_t count = 0;  // keys, at most kAttentionKeys
  float scale = 1;
  uint32_t* packed_keys = nullptr;  // scratch [steps, kAttentionKeys]
  // Scratch [kAttentionStepRows, PaddedFloats of a query], as AttentionTile's.
  float* wide_queries = nullptr;
  float* scores = nullptr;  // [tokens, kAttentionKeys]; beyond `count` undefined
};

// One row of a weighted sum: out = sum_j weights[j] * x[places[j]].
struct CombineRow {
  const char* x = nullptr;
  int64_t x_stride = 0;             // bytes
  const int32_t* places = nullptr;  // below 0: no term
  const float* weights = nullptr;
  int64_t terms = 0;
  int64_t columns = 0;
  char* out = nullptr;
};

// Row kernels work on n elements; arrays are indexed by ElementType.
struct KernelTable {
  const char* name;

  void (*product[2])(const ProductBlock& block);       // by compute type
  void (*attention[2][2])(const AttentionTile& tile);  // by compute type, cache type
  // Adds the sums of the next segment to the tile's result, or begins it with them; and writes
  // `out` of it (by compute type).
  void (*merge_segment)(const AttentionTile& tile, const AttentionSums& segment, bool begins);
  void (*write_attention[2])(const AttentionTile& tile);
  void (*expanded_attention[2][2])(const ExpandedTile& tile);    // likewise
  void (*index_scores[2][2])(const IndexBlock& block);           // likewise
  void (*convert[2][2])(const void* from, void* to, int64_t n);  // by type from, type to
  void (*rms_norm[2])(const void* x, const float* weight, double epsilon, int64_t n, void* out);
  void (*layer_norm[2])(const void* x, const float* weight, const float* bias, double epsilon,
                        int64_t n, void* out);
  void (*add[2])(void* x, const void* y, int64_t n);
  void (*silu_mul[2])(const void* gate, const void* up, int64_t n, void* out);
  // Pairs (i, half + i).
  void (*rotate_halves[2])(void* x, const float* cosines, const float* sines, int64_t half);
  void (*combine[2])(const CombineRow& row);
  // log(sum(exp(x))) = *max + log(*sum).
  void (*exp_sum)(const float* x, int64_t n, float* max, double* sum);

  // Multiply-adds from registers only, `iterations` times some vectors; returns the floating-point
  // operations done.
  double (*peak[2])(int64_t iterations);
};

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx512Bf16Kernels;
#endif

}  // namespace longspan::backend::cpu
