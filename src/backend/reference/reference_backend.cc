#include "backend/reference/reference_backend.h"

#include <algorithm>

#include "backend/reference/attention.h"
#include "backend/reference/index_select.h"
#include "backend/reference/kernels.h"
#include "backend/reference/linear.h"
#include "backend/reference/packed_matrix.h"
#include "backend/reference/router.h"
#include "backend/reference/sampling.h"
#include "backend/reference/thread_scratch.h"
#include "ops/check_backend.h"
#include "tensor/host_memory.h"

namespace longspan::backend::reference {
namespace {

constexpr ops::OpTable kOps = {
    .embedding = Embedding,
    .gather_rows = GatherRows,
    .rms_norm = RmsNorm,
    .layer_norm = LayerNorm,
    .add = Add,
    .linear = Linear,
    .head_linear = HeadLinear,
    .rope_table = RopeTable,
    .rope = Rope,
    .cache_write = CacheWrite,
    .attention = Attention,
    .latent_attention = LatentAttention,
    .merge_attention = MergeAttention,
    .expanded_latent_attention = ExpandedLatentAttention,
    .index_select = IndexSelect,
    .index_candidates = IndexCandidates,
    .index_merge = IndexMerge,
    .index_take = IndexTake,
    .silu_mul = SiluMul,
    .router = Router,
    .expert_order = ExpertOrder,
    .grouped_linear = GroupedLinear,
    .expert_combine = ExpertCombine,
    .sample = Sample,
    .token_logprob = TokenLogprob,
    .top_logprobs = TopLogprobs,
    .top_logits = TopLogits,
};

class Reference : public ops::Backend {
 public:
  std::string_view name() const override { return "reference"; }
  const ops::OpTable& ops() const override { return kOps; }
  bool always_deterministic() const override { return true; }

  base::Status CheckTypes(tensor::DType compute, tensor::DType kv_cache) const override {
    if (compute != tensor::DType::kF32)
      return base::Unimplemented("the reference backend computes in f32, not {}: use --dtype f32",
                                 tensor::DTypeName(compute));
    if (kv_cache != tensor::DType::kF32)
      return base::Unimplemented(
          "the reference backend has a KV cache of f32, not {}: use --kv-cache-dtype f32",
          tensor::DTypeName(kv_cache));
    return base::OkStatus();
  }

  base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const ops::QueueOptions& options) const override {
    if (options.threads < 1)
      return base::InvalidArgument("--threads must be 1 or more, not {}", options.threads);
    return std::unique_ptr<tensor::Queue>(std::make_unique<tensor::ThreadPool>(
        tensor::ThreadPool::Options{.threads = options.threads, .cores = options.cores}));
  }

  base::Result<tensor::Buffer> Allocate(int64_t bytes) const override {
    return tensor::AllocateHost(bytes);
  }

  int64_t AvailableBytes() const override { return tensor::AvailableHostBytes(); }

  int64_t WorkspaceBytes(const tensor::Queue& queue,
                         const ops::WorkspaceShape& shape) const override {
    const int threads = static_cast<const tensor::ThreadPool&>(queue).threads();
    const int64_t doubles =
        std::max({LinearScratchDoubles(shape.max_columns), AttentionScratchDoubles(shape.head_dim),
                  LatentAttentionScratchDoubles(shape.latent_rank, shape.latent_rope_dim),
                  IndexSelectScratchDoubles(shape.index_heads, shape.index_dim, shape.index_top_k),
                  RouterScratchDoubles(shape.experts), SamplingScratchDoubles(shape.vocab_size)});
    return tensor::Workspace::PaddedBytes(ThreadScratch::BytesFor(threads, doubles));
  }

  base::Result<std::unique_ptr<ops::PackedWeight>> Pack(
      const ops::PackRequest& request) const override {
    LONGSPAN_RETURN_IF_ERROR(CheckTypes(request.compute, tensor::DType::kF32));
    LONGSPAN_ASSIGN_OR_RETURN(const int64_t rows, ops::StackedRows(name(), request));
    const int64_t columns = request.parts[0].size(1);
    LONGSPAN_ASSIGN_OR_RETURN(auto buffer,
                              Allocate(rows * columns * tensor::SizeOf(tensor::DType::kF32)));
    auto matrix = std::make_unique<PackedMatrix>(rows, columns, std::move(buffer));
    int64_t row = 0;
    for (const tensor::ConstView& part : request.parts)
      for (int64_t i = 0; i < part.size(0); ++i) tensor::WidenRow(part, i, matrix->row(row++));
    return std::unique_ptr<ops::PackedWeight>(std::move(matrix));
  }

  base::Status Upload(tensor::Queue&, std::span<const std::byte> host,
                      tensor::View device) const override {
    return tensor::CopyIn(host, device);
  }
  base::Status Download(tensor::Queue&, tensor::ConstView device,
                        std::span<std::byte> host) const override {
    return tensor::CopyOut(device, host);
  }
};

}  // namespace

const ops::Backend& ReferenceBackend() {
  static const Reference backend;
  return backend;
}

}  // namespace longspan::backend::reference
