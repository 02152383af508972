#include "backend/cuda/cuda_backend.h"

#include <algorithm>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/cuda_queue.h"
#include "backend/cuda/packed_weight.h"
#include "backend/cuda/step_graphs.h"
#include "ops/check_backend.h"

namespace longspan::backend::cuda {
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

class CudaBackendImpl : public ops::Backend, public ops::RecordingBackend {
 public:
  std::string_view name() const override { return "cuda"; }
  const ops::OpTable& ops() const override { return kOps; }

  base::Status CheckTypes(DType compute, DType kv_cache) const override {
    return ops::CheckFloatTypes(name(), compute, kv_cache);
  }

  base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const ops::QueueOptions& options) const override {
    LONGSPAN_ASSIGN_OR_RETURN(auto queue, CudaQueue::Create(options.device));
    return std::unique_ptr<tensor::Queue>(std::move(queue));
  }

  bool is_on_host() const override { return false; }

  base::Result<tensor::Buffer> Allocate(int64_t bytes) const override {
    return AllocateDevice(bytes);
  }

  int64_t AvailableBytes() const override { return AvailableDeviceBytes(); }

  int64_t WorkspaceBytes(const tensor::Queue& queue,
                         const ops::WorkspaceShape& shape) const override {
    const int multiprocessors = static_cast<const CudaQueue&>(queue).multiprocessors();
    return std::max({AttentionWorkspaceBytes(multiprocessors, shape),
                     LatentAttentionWorkspaceBytes(multiprocessors, shape),
                     ExpandedLatentAttentionWorkspaceBytes(multiprocessors, shape),
                     IndexSelectWorkspaceBytes(multiprocessors, shape),
                     ProductWorkspaceBytes(multiprocessors, shape),
                     ExpertWorkspaceBytes(multiprocessors, shape),
                     SamplingWorkspaceBytes(multiprocessors, shape)});
  }

  base::Result<std::unique_ptr<ops::PackedWeight>> Pack(
      const ops::PackRequest& request) const override {
    return PackWeight(request);
  }
  bool generates_weights() const override { return true; }
  base::Result<std::unique_ptr<ops::PackedWeight>> Generate(
      const ops::GenerateRequest& request) const override {
    return GenerateWeight(request);
  }

  base::Status Upload(tensor::Queue& queue, std::span<const std::byte> host,
                      tensor::View device) const override {
    LONGSPAN_CHECK(device.contiguous() && static_cast<int64_t>(host.size()) == device.bytes(),
                   "{} bytes into a view of {}", host.size(), device.bytes());
    return static_cast<CudaQueue&>(queue).Upload(host, device.raw());
  }
  base::Status Download(tensor::Queue& queue, tensor::ConstView device,
                        std::span<std::byte> host) const override {
    LONGSPAN_CHECK(device.contiguous() && static_cast<int64_t>(host.size()) == device.bytes(),
                   "{} bytes from a view of {}", host.size(), device.bytes());
    return static_cast<CudaQueue&>(queue).Download(device.raw(), host);
  }

  std::unique_ptr<ops::StepRecorder> CreateRecorder(tensor::Queue& queue) const override {
    return std::make_unique<StepGraphs>(static_cast<CudaQueue&>(queue));
  }

  base::Result<tensor::Buffer> AllocateStaging(int64_t bytes) const override {
    return AllocatePinned(bytes);
  }
  base::Status StartUpload(tensor::Queue& queue, std::span<const std::byte> host,
                           tensor::View device) const override {
    return static_cast<CudaQueue&>(queue).StartUpload(host, device.raw());
  }
  base::Status StartDownload(tensor::Queue& queue, tensor::ConstView device,
                             std::span<std::byte> host) const override {
    return static_cast<CudaQueue&>(queue).StartDownload(device.raw(), host);
  }
};

}  // namespace

bool CudaIsBuilt() { return true; }

base::Result<const ops::Backend*> CudaBackend() {
  static const base::Status found = FindDevice();
  LONGSPAN_RETURN_IF_ERROR(found);
  static const CudaBackendImpl backend;
  return &backend;
}

}  // namespace longspan::backend::cuda
