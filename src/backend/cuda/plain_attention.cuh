// Attention of every kind, type and size, in f32 without tensor cores: what their kernels do not
// take, and exact sums for comparisons. A row's bits do not depend on the other rows.
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/step_rows.cuh"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

// Part of what keys or queries consist of; or values.
struct PlainPlane {
  const void* data = nullptr;
  int64_t row_stride = 0;   // of queries: from row to row of the step; of a cache: its dimension
  int64_t head_stride = 0;  // of queries alone
  int dim = 0;
};

struct PlainArgs {
  tensor::DType query_type = tensor::DType::kF32;  // of the output too
  tensor::DType cache_type = tensor::DType::kF32;
  PlainPlane queries;
  PlainPlane rope_queries;  // or none
  PlainPlane keys;
  PlainPlane rope_keys;  // as rope_queries
  PlainPlane values;     // data may be that of `keys`
  // As in FlashArgs.
  CachePages pages;
  bool paged = true;
  int64_t rows_per_head = 0;
  int32_t first_key = 0;
  int32_t last_key = INT32_MAX;
  float* state = nullptr;  // [rows, heads, 2 + value dim]

  const int32_t* selected = nullptr;  // [rows, top_k], or all positions
  int64_t selected_stride = 0;
  int top_k = 0;

  void* out = nullptr;
  int64_t out_row_stride = 0;
  int64_t out_head_stride = 0;
  float2* exp_sums = nullptr;  // as in FlashArgs
  int64_t exp_sum_stride = 0;
  DeviceTables tables;
  int group = 1;
  float scale_log2 = 1;  // scale * log2(e)
};

void PlainAttention(tensor::ExecutionContext& context, const PlainArgs& args, int64_t kv_heads,
                    const ops::StepTables& tables);

}  // namespace longspan::backend::cuda
