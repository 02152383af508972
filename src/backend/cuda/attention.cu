// Grouped-query attention over the paged cache: which kernels compute a step.
#include <numbers>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/flash_decode.cuh"
#include "backend/cuda/plain_attention.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int64_t kMostHeadDim = 128;

float ScaleLog2(float scale) { return static_cast<float>(scale * std::numbers::log2e); }

// Caches of bf16 whose rows can be copied in pieces of 16 bytes.
bool OnTensorCores(const ops::AttentionArgs& args) {
  return args.queries.dtype() == DType::kBf16 && args.key_cache.dtype() == DType::kBf16 &&
         args.value_cache.dtype() == DType::kBf16 && args.queries.size(2) <= kMostHeadDim &&
         FlashAttentionTakes(args.queries.size(2), args.queries.size(2)) &&
         IsAligned16(args.key_cache) && IsAligned16(args.value_cache);
}

void Flash(ExecutionContext& context, const ops::AttentionArgs& args, const tensor::View& scratch) {
  const int64_t kv_heads = args.key_cache.size(1);
  const int64_t dim = args.queries.size(2);
  FlashArgs flash = {.queries = static_cast<const Bf16*>(args.queries.raw()),
                     .query_row_stride = args.queries.stride(0),
                     .query_head_stride = args.queries.stride(1),
                     .keys = static_cast<const Bf16*>(args.key_cache.raw()),
                     .values = static_cast<const Bf16*>(args.value_cache.raw()),
                     .key_stride = dim,
                     .value_stride = dim,
                     .key_dim = static_cast<int>(dim),
                     .value_dim = static_cast<int>(dim),
                     .pages = CachePages::Of(args.key_cache),
                     .out = static_cast<Bf16*>(args.out.raw()),
                     .out_row_stride = args.out.stride(0),
                     .out_head_stride = args.out.stride(1),
                     .tables = DeviceTables::Of(args.tables),
                     .group = static_cast<int>(args.queries.size(1) / kv_heads),
                     .scale_log2 = ScaleLog2(args.scale),
                     .exp_sums = reinterpret_cast<float2*>(args.exp_sums.data<float>()),
                     .exp_sum_stride = args.exp_sums.stride(0) / 2};
  // The host does not know which slices have but one row, unless it is all of them. With
  // `deterministic` one kernel computes everything, in one order of sums.
  const bool split = !context.deterministic;
  const int64_t rows = args.tables.rows;
  const int64_t slices = args.tables.slices;
  if (split && (slices > 1 || rows == 1))
    FlashDecode(context, flash, kv_heads, args.tables, scratch.data<float>());
  if (split && rows == slices) return;
  flash.min_rows = split ? 2 : 1;
  FlashAttention(context, flash, kv_heads, args.tables);
}

void Plain(ExecutionContext& context, const ops::AttentionArgs& args) {
  const int64_t kv_heads = args.key_cache.size(1);
  const int dim = static_cast<int>(args.queries.size(2));
  const PlainArgs plain = {
      .query_type = args.queries.dtype(),
      .cache_type = args.key_cache.dtype(),
      .queries = {args.queries.raw(), args.queries.stride(0), args.queries.stride(1), dim},
      .keys = {args.key_cache.raw(), dim, 0, dim},
      .values = {args.value_cache.raw(), dim, 0, dim},
      .pages = CachePages::Of(args.key_cache),
      .out = args.out.raw(),
      .out_row_stride = args.out.stride(0),
      .out_head_stride = args.out.stride(1),
      .exp_sums = reinterpret_cast<float2*>(args.exp_sums.data<float>()),
      .exp_sum_stride = args.exp_sums.stride(0) / 2,
      .tables = DeviceTables::Of(args.tables),
      .group = static_cast<int>(args.queries.size(1) / kv_heads),
      .scale_log2 = ScaleLog2(args.scale)};
  PlainAttention(context, plain, kv_heads, args.tables);
}

}  // namespace

int64_t AttentionWorkspaceBytes(int multiprocessors, const ops::WorkspaceShape& shape) {
  return FlashDecodeWorkspaceBytes(multiprocessors, shape.heads, shape.kv_heads, shape.head_dim);
}

void Attention(ExecutionContext& context, const ops::AttentionArgs& args) {
  if (args.tables.rows == 0) return;
  tensor::Workspace::Scope scope(context.workspace);
  const int64_t bytes = FlashDecodeWorkspaceBytes(MultiprocessorsOf(context), args.queries.size(1),
                                                  args.key_cache.size(1), args.queries.size(2));
  const tensor::View scratch = scope.Take(DType::kF32, {bytes / 4});
  if (OnTensorCores(args)) return Flash(context, args, scratch);
  Plain(context, args);
}

}  // namespace longspan::backend::cuda
