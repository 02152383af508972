// Expanded latent attention: for every group of heads and block of positions the keys and values
// are made, then attended to by all rows of the slice, whose sums go on from block to block. Blocks
// are cut at fixed positions: a row's bits do not depend on the other rows.
#include <algorithm>
#include <numbers>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/expand_latents.cuh"
#include "backend/cuda/flash_attention.cuh"
#include "backend/cuda/packed_weight.h"
#include "backend/cuda/plain_attention.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int64_t kBlockKeys = 4096;

int64_t RoundUp(int64_t n) { return (n + 7) / 8 * 8; }

// What the blocks of a step need; counted for f32, whatever its type.
struct Sizes {
  int64_t rows;
  int64_t heads;  // at once
  int64_t key_stride;
  int64_t value_stride;
  int64_t state_floats;  // of a row and head

  static Sizes For(int64_t rows, int64_t heads, int64_t key_dim, int64_t value_dim) {
    return {rows, std::min<int64_t>(heads, kExpandedHeads), RoundUp(key_dim), RoundUp(value_dim),
            FlashAttentionTakes(RoundUp(key_dim), value_dim)
                ? FlashStateFloats(RoundUp(key_dim), value_dim)
                : 2 + value_dim};
  }
  int64_t key_elements() const { return heads * kBlockKeys * key_stride; }
  int64_t value_elements() const { return heads * kBlockKeys * value_stride; }
  int64_t state_elements() const { return rows * heads * state_floats; }
  int64_t Bytes() const {
    const auto padded = [](int64_t elements) {
      return tensor::Workspace::PaddedBytes(elements * 4);
    };
    return padded(key_elements()) + padded(value_elements()) + padded(state_elements());
  }
};

struct Scratch {
  void* keys;
  void* values;
  float* state;
};

bool OnTensorCores(const ops::ExpandedLatentAttentionArgs& args) {
  const int64_t query = args.queries.size(2);
  return args.queries.dtype() == DType::kBf16 && FlashAttentionTakes(query, args.out.size(2));
}

const void* HeadOf(const tensor::ConstView& view, int64_t head) {
  return static_cast<const char*>(view.raw()) +
         head * view.stride(1) * tensor::SizeOf(view.dtype());
}

ExpandArgs CommonExpandArgs(const ops::ExpandedLatentAttentionArgs& args, const Sizes& sizes,
                            const Scratch& scratch) {
  const auto rope = static_cast<int>(args.rope_cache.size(3));
  ExpandArgs expand = {};
  expand.cache_type = args.latent_cache.dtype();
  expand.type = args.queries.dtype();
  expand.latents = args.latent_cache.raw();
  expand.ropes = args.rope_cache.raw();
  expand.aligned = IsAligned16(args.latent_cache);
  expand.pages = CachePages::Of(args.latent_cache);
  expand.rank = static_cast<int>(args.latent_cache.size(3));
  expand.rope = rope;
  expand.nope = static_cast<int>(args.queries.size(2)) - rope;
  expand.value = static_cast<int>(args.out.size(2));
  expand.keys = scratch.keys;
  expand.key_stride = sizes.key_stride;
  expand.values = scratch.values;
  expand.value_stride = sizes.value_stride;
  return expand;
}

// One block of keys of one slice, for expand.heads heads from `head` on.
void Attend(ExecutionContext& context, const ops::ExpandedLatentAttentionArgs& args,
            const ExpandArgs& expand, int64_t head, float* state) {
  const auto* queries = HeadOf(args.queries, head);
  auto* out = const_cast<void*>(HeadOf(args.out, head));
  const int key_dim = static_cast<int>(args.queries.size(2));
  const auto scale_log2 = static_cast<float>(args.scale * std::numbers::log2e);
  if (OnTensorCores(args)) {
    const FlashArgs flash = {.queries = static_cast<const Bf16*>(queries),
                             .query_row_stride = args.queries.stride(0),
                             .query_head_stride = args.queries.stride(1),
                             .keys = static_cast<const Bf16*>(expand.keys),
                             .values = static_cast<const Bf16*>(expand.values),
                             .key_stride = expand.key_stride,
                             .value_stride = expand.value_stride,
                             .key_dim = key_dim,
                             .value_dim = expand.value,
                             .paged = false,
                             .rows_per_head = kBlockKeys,
                             .out = static_cast<Bf16*>(out),
                             .out_row_stride = args.out.stride(0),
                             .out_head_stride = args.out.stride(1),
                             .tables = expand.tables,
                             .group = 1,
                             .scale_log2 = scale_log2,
                             .first_key = expand.first_key,
                             .last_key = expand.last_key,
                             .state = state};
    return FlashAttention(context, flash, expand.heads, args.tables);
  }
  const PlainArgs plain = {
      .query_type = args.queries.dtype(),
      .cache_type = args.queries.dtype(),
      .queries = {queries, args.queries.stride(0), args.queries.stride(1), key_dim},
      .keys = {expand.keys, expand.key_stride, 0, key_dim},
      .values = {expand.values, expand.value_stride, 0, expand.value},
      .paged = false,
      .rows_per_head = kBlockKeys,
      .first_key = expand.first_key,
      .last_key = expand.last_key,
      .state = state,
      .out = out,
      .out_row_stride = args.out.stride(0),
      .out_head_stride = args.out.stride(1),
      .tables = expand.tables,
      .group = 1,
      .scale_log2 = scale_log2};
  PlainAttention(context, plain, expand.heads, args.tables);
}

}  // namespace

int64_t ExpandedLatentAttentionWorkspaceBytes(int, const ops::WorkspaceShape& shape) {
  if (shape.latent_value_dim == 0) return 0;
  return Sizes::For(shape.rows, shape.heads, shape.latent_nope_dim + shape.latent_rope_dim,
                    shape.latent_value_dim)
      .Bytes();
}

void ExpandedLatentAttention(ExecutionContext& context,
                             const ops::ExpandedLatentAttentionArgs& args) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  const int64_t heads = args.queries.size(1);
  const Sizes sizes = Sizes::For(tables.rows, heads, args.queries.size(2), args.out.size(2));
  tensor::Workspace::Scope scope(context.workspace);
  const Scratch scratch = {scope.Take(DType::kF32, {sizes.key_elements()}).raw(),
                           scope.Take(DType::kF32, {sizes.value_elements()}).raw(),
                           scope.Take(DType::kF32, {sizes.state_elements()}).data<float>()};
  ExpandArgs expand = CommonExpandArgs(args, sizes, scratch);
  const DeviceTables all = DeviceTables::Of(tables);
  // Of every slice the host knows only how long it is at most: kernels that find nothing to do end
  // at once.
  for (int64_t head = 0; head < heads; head += sizes.heads) {
    expand.heads = static_cast<int>(std::min(sizes.heads, heads - head));
    for (int i = 0; i < expand.heads; ++i) {
      expand.key_weights[i] = AsCuda(*args.key_weights[head + i]).data();
      expand.value_weights[i] = AsCuda(*args.value_weights[head + i]).data();
    }
    for (int64_t slice = 0; slice < tables.slices; ++slice) {
      expand.tables = all.Slice(slice);
      for (int64_t key = 0; key < tables.max_kv_length; key += kBlockKeys) {
        expand.first_key = static_cast<int32_t>(key);
        expand.last_key = static_cast<int32_t>(key + kBlockKeys);
        ExpandLatents(context, expand);
        Attend(context, args, expand, head, scratch.state);
      }
    }
  }
}

}  // namespace longspan::backend::cuda
