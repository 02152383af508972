#include "plan/block_share.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "plan/tensor_share.h"

namespace longspan::plan {
namespace {

// A dimension of a weight that ranks divide.
struct DividedWeight {
  std::string_view name;
  std::string_view dimension;
  int64_t size = 0;
  int parts = 1;
};

std::vector<DividedWeight> DividedWeights(const spec::ModelSpec& model, const spec::Mesh& mesh,
                                          int tp) {
  std::vector<DividedWeight> weights;
  const auto has = [&](spec::FeedForwardKind kind) {
    return std::count(model.feed_forward.begin(), model.feed_forward.end(), kind) > 0;
  };
  if (has(spec::FeedForwardKind::kMoe)) {
    const int parts = tp / std::gcd(tp, mesh.ep);
    weights.push_back(
        {"mlp.experts.*.gate_proj.weight", "rows", model.moe.intermediate_size, parts});
    if (model.moe.shared_experts > 0)
      weights.push_back({"mlp.shared_experts.gate_proj.weight", "rows",
                         int64_t{model.moe.shared_experts} * model.moe.intermediate_size, tp});
  }
  if (has(spec::FeedForwardKind::kDense))
    weights.push_back({"mlp.gate_proj.weight", "rows", model.intermediate_size, tp});
  if (model.latent_attention) {
    const spec::LatentAttentionSpec& latent = *model.latent_attention;
    weights.push_back({"self_attn.kv_b_proj.weight", "rows",
                       int64_t{latent.heads} * (latent.nope_dim + latent.value_dim), tp});
    weights.push_back(
        {"self_attn.o_proj.weight", "columns", int64_t{latent.heads} * latent.value_dim, tp});
  } else {
    const spec::AttentionSpec& attention = model.attention;
    weights.push_back(
        {"self_attn.q_proj.weight", "rows", int64_t{attention.heads} * attention.head_dim, tp});
    weights.push_back({"self_attn.k_proj.weight", "rows",
                       int64_t{attention.kv_heads} * attention.head_dim,
                       std::min(tp, attention.kv_heads)});
  }
  return weights;
}

// The weight that this size cuts through a block; nothing where it cuts none.
std::vector<DividedWeight> Cut(const spec::ModelSpec& model, const spec::Mesh& mesh, int tp,
                               int64_t block) {
  std::vector<DividedWeight> cut;
  for (const DividedWeight& weight : DividedWeights(model, mesh, tp))
    if (weight.parts > 1 && weight.size > block && weight.size / weight.parts % block != 0)
      cut.push_back(weight);
  return cut;
}

}  // namespace

base::Status CheckBlockShares(const spec::ModelSpec& model, const spec::Mesh& mesh, int64_t block) {
  const auto cut = Cut(model, mesh, mesh.tp, block);
  if (cut.empty()) return base::OkStatus();
  int fitting = mesh.tp - 1;
  while (fitting > 1 &&
         (!Cut(model, mesh, fitting, block).empty() || !CheckTensorShares(model, fitting).ok()))
    --fitting;
  const DividedWeight& weight = cut.front();
  return base::InvalidArgument(
      "--tp-size {} leaves {} of the {} {} of {} to a rank, which is no multiple of the {} that "
      "one "
      "scale of its eight-bit blocks is for: use --tp-size {}",
      mesh.tp, weight.size / weight.parts, weight.size, weight.dimension, weight.name, block,
      fitting);
}

}  // namespace longspan::plan
