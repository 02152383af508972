#include "plan/memory_use.h"

#include <algorithm>

#include "kv/kv_layout.h"
#include "plan/model_work.h"
#include "plan/tensor_share.h"

namespace longspan::plan {
namespace {

constexpr double kWideBytes = 2;  // of what is not kept in eight bits
// One scale of four bytes for 128 x 128 weights.
constexpr double kScaleShare = 4.0 / (128 * 128);
// Buffers of a hidden state that a layer has at once, residual streams aside.
constexpr double kHiddenBuffers = 6;

double ExpertParameters(const Deployment& deployment) {
  const spec::ModelSpec& model = deployment.model;
  const spec::Mesh& mesh = deployment.mesh;
  const double parts = static_cast<double>(mesh.ep) * std::max(1, mesh.tp / mesh.ep);
  return 3.0 * model.hidden_size * model.moe.intermediate_size * model.moe.experts / parts;
}

double LayerBytes(const Deployment& deployment, const spec::ModelSpec& share,
                  spec::FeedForwardKind kind) {
  const Precision& precision = deployment.precision;
  const double weight = precision.weight_bytes() * (precision.fp8_weights ? 1 + kScaleShare : 1);
  double bytes = static_cast<double>(AttentionParameters(share)) * weight;
  if (kind == spec::FeedForwardKind::kDense)
    return bytes + static_cast<double>(MlpParameters(share)) * weight;
  bytes += ExpertParameters(deployment) * weight;
  bytes +=
      3.0 * share.hidden_size * share.moe.shared_experts * share.moe.intermediate_size * weight;
  return bytes + static_cast<double>(share.hidden_size) * share.moe.experts * kWideBytes;
}

}  // namespace

MemoryUse MemoryOfRank(const Deployment& deployment, std::span<const LayerRange> ranges,
                       int64_t rows) {
  const spec::ModelSpec& model = deployment.model;
  const spec::ModelSpec share = ShareOf(model, deployment.mesh.tp);
  const double end_bytes = kWideBytes * share.hidden_size * share.vocab_size;
  MemoryUse use;
  for (const LayerRange& range : ranges) {
    if (range.begin == 0) use.weight_bytes += end_bytes;
    if (range.end == model.layers()) use.weight_bytes += end_bytes;
    for (int layer = range.begin; layer < range.end; ++layer)
      use.weight_bytes +=
          LayerBytes(deployment, share, model.feed_forward[static_cast<size_t>(layer)]);
    use.kv_bytes_per_token +=
        static_cast<double>(range.size()) *
        static_cast<double>(kv::BytesPerTokenLayer(share, deployment.precision.kv_bytes));
  }
  if (deployment.divides_cache()) use.kv_bytes_per_token /= deployment.mesh.cp;
  const double own_rows = static_cast<double>(rows) / deployment.mesh.cp;
  const double hidden =
      own_rows * share.hidden_size * static_cast<double>(deployment.precision.compute_bytes);
  const double residual_buffers = deployment.mesh.pp == 1 ? 1 : deployment.mesh.pp + 2;
  use.workspace_bytes = hidden * (kHiddenBuffers + residual_buffers);
  // Rows in the order of experts, before and after them.
  use.workspace_bytes += 2 * hidden * share.moe.experts_per_token *
                         std::max(1, deployment.mesh.ep / deployment.mesh.tp) / deployment.mesh.ep;
  return use;
}

}  // namespace longspan::plan
