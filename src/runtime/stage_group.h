// All ranks of a pipeline, as the engine sees them: plans go in, results come out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "plan/step_plan.h"
#include "plan/step_result.h"
#include "runtime/rank_config.h"
#include "runtime/rank_handle.h"

namespace longspan::runtime {

// How much KV cache to allocate.
struct CapacityOptions {
  std::optional<int64_t> max_total_tokens;  // exactly this, rounded up to pages
  double memory_fraction = 0.8;     // else this share of the memory that the weights leave free
  int64_t most_tokens = INT64_MAX;  // but no more than could ever be used
};

// What the ranks have agreed on.
struct GroupInfo {
  int64_t pages = 0;
  int page_size = 0;
  std::vector<RankReady> ranks;

  int64_t capacity_tokens() const { return pages * page_size; }
  int64_t kv_bytes_per_token() const;
};

// One capacity for all ranks: the pages that the tightest of them can hold. The ranks of a node
// share its memory, those of a GPU that one's. ResourceExhausted with the numbers where not even
// one page fits, or fewer than were asked for.
base::Result<int64_t> ChoosePages(const CapacityOptions& options,
                                  const std::vector<RankReady>& ranks, int page_size);

// What the leader gives plans to and has results from. Destroying it ends the ranks. All members
// belong to one thread.
class StageGroup {
 public:
  // Called with the loading share of the slowest rank, in [0, 1].
  using Progress = std::function<void(double share)>;

  // Configures the ranks (in the order of the mesh), waits for their weights, settles the capacity
  // and allocates. The first failure of a rank is returned.
  static base::Result<std::unique_ptr<StageGroup>> BringUp(
      std::vector<std::unique_ptr<RankHandle>> ranks, const std::vector<RankConfig>& configs,
      const CapacityOptions& capacity, const Progress& progress = {});
  virtual ~StageGroup() = default;
  StageGroup(const StageGroup&) = delete;
  StageGroup& operator=(const StageGroup&) = delete;

  const spec::Mesh& mesh() const { return mesh_; }
  int stages() const { return mesh_.pp; }
  int ranks() const { return mesh_.ranks(); }
  // How often a plan passes through all of them.
  int loops() const { return loops_; }
  const GroupInfo& info() const { return info_; }

  // Gives a plan to every rank.
  virtual base::Status Submit(const plan::StepPlan& plan) = 0;

  // The next result of any rank; those of one rank come in the order of the plans. An error when a
  // rank has failed, is gone, or has given no sign of life or of progress for too long: which, and
  // why. The group is over then, and destroying it kills what is left of it.
  virtual base::Result<plan::StepResult> Next() = 0;

 protected:
  StageGroup(const spec::Mesh& mesh, int loops) : mesh_(mesh), loops_(loops) {}

  spec::Mesh mesh_;
  int loops_;
  GroupInfo info_;
};

// Brings a group up for an epoch, all over again: the ranks of an earlier one have ended.
using StageGroupFactory =
    std::function<base::Result<std::unique_ptr<StageGroup>>(plan::Epoch epoch)>;

}  // namespace longspan::runtime
