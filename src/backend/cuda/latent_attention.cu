// Absorbed latent attention: which kernel computes a step.
#include <numbers>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/latent_flash.cuh"
#include "backend/cuda/plain_attention.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

bool OnTensorCores(const ops::LatentAttentionArgs& args) {
  return args.latent_queries.dtype() == DType::kBf16 && args.latent_cache.dtype() == DType::kBf16 &&
         args.latent_cache.size(3) == kLatentRank && args.rope_cache.size(3) == kLatentRope &&
         IsAligned16(args.latent_cache) && IsAligned16(args.rope_cache);
}

void Flash(ExecutionContext& context, const ops::LatentAttentionArgs& args, float* parts) {
  const LatentFlashArgs flash = {
      .latent_queries = static_cast<const Bf16*>(args.latent_queries.raw()),
      .latent_row_stride = args.latent_queries.stride(0),
      .latent_head_stride = args.latent_queries.stride(1),
      .rope_queries = static_cast<const Bf16*>(args.rope_queries.raw()),
      .rope_row_stride = args.rope_queries.stride(0),
      .rope_head_stride = args.rope_queries.stride(1),
      .latents = static_cast<const Bf16*>(args.latent_cache.raw()),
      .ropes = static_cast<const Bf16*>(args.rope_cache.raw()),
      .pages = CachePages::Of(args.latent_cache),
      .selected = args.selected.empty() ? nullptr : args.selected.data<int32_t>(),
      .selected_stride = args.selected.stride(0),
      .top_k = static_cast<int>(args.selected.size(1)),
      .out = static_cast<Bf16*>(args.out.raw()),
      .out_row_stride = args.out.stride(0),
      .out_head_stride = args.out.stride(1),
      .exp_sums = reinterpret_cast<float2*>(args.exp_sums.data<float>()),
      .exp_sum_stride = args.exp_sums.stride(0) / 2,
      .tables = DeviceTables::Of(args.tables),
      .heads = static_cast<int>(args.out.size(1)),
      .scale_log2 = static_cast<float>(args.scale * std::numbers::log2e),
      .parts = parts};
  LatentFlash(context, flash, args.tables);
}

void Plain(ExecutionContext& context, const ops::LatentAttentionArgs& args) {
  const int rank = static_cast<int>(args.latent_cache.size(3));
  const int rope = static_cast<int>(args.rope_cache.size(3));
  const auto queries = [](const tensor::ConstView& view, int dim) -> PlainPlane {
    return {view.raw(), view.stride(0), view.stride(1), dim};
  };
  const PlainPlane latents = {args.latent_cache.raw(), rank, 0, rank};
  const PlainArgs plain = {
      .query_type = args.latent_queries.dtype(),
      .cache_type = args.latent_cache.dtype(),
      .queries = queries(args.latent_queries, rank),
      .rope_queries = queries(args.rope_queries, rope),
      .keys = latents,
      .rope_keys = {args.rope_cache.raw(), rope, 0, rope},
      .values = latents,
      .pages = CachePages::Of(args.latent_cache),
      .selected = args.selected.empty() ? nullptr : args.selected.data<int32_t>(),
      .selected_stride = args.selected.stride(0),
      .top_k = static_cast<int>(args.selected.size(1)),
      .out = args.out.raw(),
      .out_row_stride = args.out.stride(0),
      .out_head_stride = args.out.stride(1),
      .exp_sums = reinterpret_cast<float2*>(args.exp_sums.data<float>()),
      .exp_sum_stride = args.exp_sums.stride(0) / 2,
      .tables = DeviceTables::Of(args.tables),
      .group = static_cast<int>(args.out.size(1)),
      .scale_log2 = static_cast<float>(args.scale * std::numbers::log2e)};
  PlainAttention(context, plain, 1, args.tables);
}

}  // namespace

int64_t LatentAttentionWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape) {
  return shape.latent_rank == 0 ? 0 : LatentFlashWorkspaceBytes(multiprocessors);
}

void LatentAttention(ExecutionContext& context, const ops::LatentAttentionArgs& args) {
  if (args.tables.rows == 0) return;
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t bytes = LatentFlashWorkspaceBytes(MultiprocessorsOf(context));
  const tensor::View parts = scope.Take(DType::kF32, {bytes / 4});
  if (OnTensorCores(args)) return Flash(context, args, parts.data<float>());
  Plain(context, args);
}

}  // namespace longspan::backend::cuda
