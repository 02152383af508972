#include "plan/expert_share.h"

#include <algorithm>

#include "base/mix_bits.h"

namespace longspan::plan {

bool ExpertShare::Sends(int32_t position) const {
  if (row_parts == 1) return true;
  const uint64_t mixed = base::MixBits(static_cast<uint64_t>(position) + 1);
  return mixed % static_cast<uint64_t>(row_parts) == static_cast<uint64_t>(row_part);
}

ExpertShare ExpertShareOf(const spec::Mesh& mesh, int rank) {
  const int row_parts = std::min(mesh.ep, mesh.tp);
  return {.rank = mesh.ep_rank_of(rank),
          .size = mesh.ep,
          .column_parts = mesh.tp / row_parts,
          .row_part = mesh.tp_rank_of(rank) % row_parts,
          .row_parts = row_parts};
}

base::Status CheckExpertShares(const spec::ModelSpec& model, const spec::Mesh& mesh) {
  if (mesh.ep == 1) return base::OkStatus();
  if (std::count(model.feed_forward.begin(), model.feed_forward.end(),
                 spec::FeedForwardKind::kMoe) == 0)
    return base::InvalidArgument("the model has no experts to divide: use --ep-size 1");
  if (model.moe.experts % mesh.ep == 0) return base::OkStatus();
  int fitting = mesh.ep;
  while (model.moe.experts % fitting != 0 || !spec::DividesStage(mesh, fitting)) --fitting;
  return base::InvalidArgument("--ep-size {} does not divide the {} experts: use --ep-size {}",
                               mesh.ep, model.moe.experts, fitting);
}

}  // namespace longspan::plan
