// Absorbed latent attention in bf16 on tensor cores, at the sizes of DeepSeek-V2 and V3.
#pragma once

#include "backend/cuda/element.cuh"
#include "backend/cuda/step_rows.cuh"
#include "ops/backend.h"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

constexpr int kLatentRank = 512;
constexpr int kLatentRope = 64;

struct LatentFlashArgs {
  const Bf16* latent_queries;
  int64_t latent_row_stride;
  int64_t latent_head_stride;
  const Bf16* rope_queries;
  int64_t rope_row_stride;
  int64_t rope_head_stride;
  const Bf16* latents;  // dense caches, aligned to 16 bytes
  const Bf16* ropes;
  CachePages pages;
  const int32_t* selected;  // [rows, top_k], or null
  int64_t selected_stride;
  int top_k;
  Bf16* out;
  int64_t out_row_stride;
  int64_t out_head_stride;
  float2* exp_sums;  // [rows, heads], rows this far apart, or null
  int64_t exp_sum_stride;
  DeviceTables tables;
  int heads;
  float scale_log2;  // scale * log2(e)
  float* parts;      // LatentFlashWorkspaceBytes
};

// With few tiles of queries the keys are split over blocks, unless the context is deterministic:
// how far depends on the number of rows and slices.
void LatentFlash(tensor::ExecutionContext& context, const LatentFlashArgs& args,
                 const ops::StepTables& tables);

int64_t LatentFlashWorkspaceBytes(int multiprocessors);

}  // namespace longspan::backend::cuda
