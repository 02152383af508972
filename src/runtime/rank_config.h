// Everything a rank needs to know to come up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/expert_share.h"
#include "plan/ids.h"
#include "plan/layer_split.h"
#include "plan/page_share.h"
#include "plan/tensor_share.h"
#include "plan/token_split.h"
#include "spec/mesh.h"
#include "tensor/dtype.h"

namespace longspan::runtime {

enum class LoadFormat : uint8_t { kAuto, kDummy };

// How many plans the leader keeps in flight: one for every stage and one that waits before the
// first. More would only lengthen what a stop that is found late throws away. With looped stages a
// group of plans that leaves, one that enters, and one plan that waits to be in a group.
constexpr int PlansInFlight(int stages, int loops) {
  return loops == 1 ? stages + 1 : 2 * stages + 1;
}

// How many buffers a stage passes residual streams through, in turn. A group of plans that comes
// back for its next loop finds its buffers posted while the stage still computes the last of them,
// and one is being sent.
constexpr int ResidualBuffers(int stages) { return stages + 2; }

// A plain value, sent to the rank as its first frame.
struct RankConfig {
  std::string model_dir;
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t dummy_seed = 0;

  std::string backend;
  int32_t threads = 1;
  std::vector<int32_t> cores;  // to pin the threads to; empty: not pinned
  int32_t device = -1;         // the GPU, among those that the rank sees; -1: none
  // Whether the residual stream comes from, and goes to, another GPU without passing the host.
  bool previous_by_peer_copy = false;
  bool next_by_peer_copy = false;
  tensor::DType compute = tensor::DType::kF32;
  tensor::DType kv_cache = tensor::DType::kF32;
  bool deterministic = false;
  // For benches: the KV cache begins with pseudo-random numbers instead of zeros, so that a prefix
  // that nobody computed costs what a real one does.
  bool synthetic_kv = false;

  int32_t node = 0;   // whose memory the rank uses; the rank itself need not know
  plan::Epoch epoch;  // plans of another one are refused
  spec::Mesh mesh;
  int32_t rank = 0;  // of the mesh
  plan::TokenSplit token_split = plan::TokenSplit::kInterleave;
  plan::KvPlacement kv_placement = plan::KvPlacement::kReplicated;
  std::vector<plan::LayerRange> ranges;  // one for every loop; all ranks have as many

  int32_t page_size = 64;
  int64_t max_rows = 0;     // of one plan
  int64_t max_slices = 0;   // of one plan
  int64_t max_context = 0;  // tokens of one sequence

  int64_t beat_every_ms = 500;
  int64_t peer_timeout_ms = 5000;       // without a sign of life a rank, or the leader, is lost
  int64_t watchdog_timeout_ms = 60000;  // a plan that computes longer is a stall

  int stage() const { return mesh.stage_of(rank); }
  int stages() const { return mesh.pp; }
  bool first() const { return stage() == 0; }
  bool last() const { return stage() == stages() - 1; }
  // Whether it speaks for its stage: of what all ranks of a stage know, it tells the leader.
  bool leads_stage() const { return mesh.lane_of(rank) == 0; }
  plan::ExpertShare expert_share() const { return plan::ExpertShareOf(mesh, rank); }
  plan::TensorShare tensor_share() const { return {mesh.tp_rank_of(rank), mesh.tp}; }
  plan::ContextShare context_share() const { return {mesh.cp_rank_of(rank), mesh.cp, token_split}; }
  // Of a cache that the context-parallel ranks divide, or of a whole one.
  plan::PageShare page_share() const {
    if (kv_placement == plan::KvPlacement::kReplicated) return {};
    return {mesh.cp_rank_of(rank), mesh.cp};
  }
  bool shares_cache() const { return page_share().size > 1; }
  // Of a plan of max_rows, those that the rank itself computes.
  int64_t max_own_rows() const { return plan::MostRowsOfRank(max_rows, token_split, mesh.cp); }
  // How often a plan passes through the rank. A stage that is alone computes its ranges in one go.
  int loops() const { return stages() == 1 ? 1 : static_cast<int>(ranges.size()); }
  bool embeds(int loop) const { return first() && loop == 0; }
  bool samples(int loop) const { return last() && loop == loops() - 1; }
};

// What a rank says when its weights are loaded.
struct RankReady {
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t kv_bytes_per_page = 0;  // of its own layers
  int64_t available_bytes = 0;    // device memory that is left for KV
  // Whose memory it is, by the configuration: not told by the rank.
  int32_t node = 0;
  int32_t device = -1;
};

}  // namespace longspan::runtime
