// Attention of bf16 queries to a paged bf16 cache on tensor cores, for chunks of many rows
// (FlashAttention-2: Dao 2023, arXiv:2307.08691).
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/step_rows.cuh"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

// Keys and values of a head lie at rows of CachePages, or where `paged` is false one after the
// other: row `head * rows_per_head + (position - first_key)`.
//
// Query head h uses KV head h / group. Dimensions are padded with zeros to what the kernel was made
// for. Rows of keys and values are dense, and aligned to 16 bytes.
struct FlashArgs {
  const Bf16* queries;
  int64_t query_row_stride;
  int64_t query_head_stride;
  const Bf16* keys;
  const Bf16* values;
  int64_t key_stride;  // of a row: the dimension, and any padding
  int64_t value_stride;
  int key_dim;    // multiples of 8
  int value_dim;  // what is written of a row; rows hold a multiple of 8
  CachePages pages;
  bool paged = true;
  int64_t rows_per_head = 0;
  Bf16* out;
  int64_t out_row_stride;
  int64_t out_head_stride;
  DeviceTables tables;
  int group;
  float scale_log2;  // scale * log2(e)
  int min_rows = 1;  // slices with fewer are not computed
  // [rows, heads], rows this far apart, or null. Only where all keys come in one block.
  float2* exp_sums = nullptr;
  int64_t exp_sum_stride = 0;

  // Where keys come in blocks: this one holds positions [first_key, last_key). Running maxima, sums
  // and weighted sums of rows that go on behind it are kept in `state`, [rows, heads,
  // kStateExtra + value_dim padded], and read from there where first_key is not 0.
  int32_t first_key = 0;
  int32_t last_key = INT32_MAX;
  float* state = nullptr;
};

// Floats in front of a row of `state`: maximum, sum, two unused.
constexpr int kStateExtra = 4;

// For dimensions of keys and values up to 64 and 64, 128 and 128, 192 and 128.
bool FlashAttentionTakes(int64_t key_dim, int64_t value_dim);
// Of a row of `state`.
int64_t FlashStateFloats(int64_t key_dim, int64_t value_dim);
// `kv_heads` of them from the first; `tables` as those of the arguments.
void FlashAttention(tensor::ExecutionContext& context, const FlashArgs& args, int64_t kv_heads,
                    const ops::StepTables& tables);

}  // namespace longspan::backend::cuda
