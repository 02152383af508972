#include "ops/op_table.h"

#include <array>
#include <utility>

namespace longspan::ops {

std::vector<std::string_view> MissingOps(const OpTable& table, const std::vector<OpKind>& needed) {
  // In the order of OpKind.
  const std::array<std::pair<std::string_view, bool>, 27> offered = {{
      {"embedding", table.embedding != nullptr},
      {"gather_rows", table.gather_rows != nullptr},
      {"rms_norm", table.rms_norm != nullptr},
      {"layer_norm", table.layer_norm != nullptr},
      {"add", table.add != nullptr},
      {"linear", table.linear != nullptr},
      {"head_linear", table.head_linear != nullptr},
      {"rope_table", table.rope_table != nullptr},
      {"rope", table.rope != nullptr},
      {"cache_write", table.cache_write != nullptr},
      {"attention", table.attention != nullptr},
      {"latent_attention", table.latent_attention != nullptr},
      {"merge_attention", table.merge_attention != nullptr},
      {"expanded_latent_attention", table.expanded_latent_attention != nullptr},
      {"index_select", table.index_select != nullptr},
      {"index_candidates", table.index_candidates != nullptr},
      {"index_merge", table.index_merge != nullptr},
      {"index_take", table.index_take != nullptr},
      {"silu_mul", table.silu_mul != nullptr},
      {"router", table.router != nullptr},
      {"expert_order", table.expert_order != nullptr},
      {"grouped_linear", table.grouped_linear != nullptr},
      {"expert_combine", table.expert_combine != nullptr},
      {"sample", table.sample != nullptr},
      {"token_logprob", table.token_logprob != nullptr},
      {"top_logprobs", table.top_logprobs != nullptr},
      {"top_logits", table.top_logits != nullptr},
  }};
  std::vector<std::string_view> missing;
  for (const OpKind kind : needed) {
    const auto& [name, present] = offered[static_cast<size_t>(kind)];
    if (!present) missing.push_back(name);
  }
  return missing;
}

}  // namespace longspan::ops
