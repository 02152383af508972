#include "backend/cpu/cpu_backend.h"

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed.h"
#include "ops/check_backend.h"
#include "tensor/host_memory.h"

namespace longspan::backend::cpu {
namespace {

using tensor::DType;

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

class CpuBackendImpl : public ops::Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  const ops::OpTable& ops() const override { return kOps; }

  base::Status CheckTypes(DType compute, DType kv_cache) const override {
    return ops::CheckFloatTypes(name(), compute, kv_cache);
  }

  base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const ops::QueueOptions& options) const override {
    LONGSPAN_RETURN_IF_ERROR(CheckIsaChoice());
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
    return std::max(
        {AttentionWorkspaceBytes(threads, shape), LatentAttentionWorkspaceBytes(threads, shape),
         ExpandedLatentAttentionWorkspaceBytes(threads, shape),
         IndexSelectWorkspaceBytes(threads, shape), RouterWorkspaceBytes(threads, shape),
         LinearWorkspaceBytes(threads, shape), SamplingWorkspaceBytes(threads, shape)});
  }

  base::Result<std::unique_ptr<ops::PackedWeight>> Pack(
      const ops::PackRequest& request) const override {
    return PackWeight(request);
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

const ops::Backend& CpuBackend() {
  static const CpuBackendImpl backend;
  return backend;
}

}  // namespace longspan::backend::cpu
