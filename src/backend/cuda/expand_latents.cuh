// Keys and values of several heads, made from a block of one sequence's latents.
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/step_rows.cuh"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

constexpr int kExpandedHeads = 16;  // at once, at most

struct ExpandArgs {
  tensor::DType cache_type;
  tensor::DType type;  // of weights, keys and values
  const void* latents;
  const void* ropes;
  bool aligned;  // rows of latents and weights begin at multiples of 16 bytes
  CachePages pages;
  DeviceTables tables;  // of the one slice
  int rank;
  int rope;
  int nope;
  int value;
  int heads;
  const void* key_weights[kExpandedHeads];    // [nope, rank]
  const void* value_weights[kExpandedHeads];  // [value, rank]
  int32_t first_key;                          // of the block
  int32_t last_key;
  // [heads, last_key - first_key, stride]: nope, rope, zeros; value, zeros.
  void* keys;
  int64_t key_stride;
  void* values;
  int64_t value_stride;
};

void ExpandLatents(tensor::ExecutionContext& context, const ExpandArgs& args);

}  // namespace longspan::backend::cuda
