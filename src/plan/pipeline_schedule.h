// In which order the ranks of a pipeline with looped stages work, and how long that takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "plan/step_plan.h"

namespace longspan::plan {

// A plan passes through all ranks once in every loop.
struct PlanLoop {
  PlanNumber plan;
  int loop = 0;
  friend bool operator==(const PlanLoop&, const PlanLoop&) = default;
};

// The order of work, the same on every rank: the plans of a group one after the other in loop 0,
// then all of them in loop 1, and so on, then the next group. Which plans form a group stands in
// the plans (StepPlan::ends_group). With groups of as many equal plans as there are ranks, the
// first plan comes back from the last rank when the first rank is done with the others.
class LoopOrder {
 public:
  explicit LoopOrder(int loops) : loops_(loops) {}

  // Takes the next plan of the log; returns what follows in the order now that it is known. So a
  // rank never waits for a plan while there is something of an earlier group to do.
  std::vector<PlanLoop> Add(PlanNumber plan, bool ends_group);

 private:
  int loops_;
  std::vector<PlanNumber> group_;
};

// Gathers plans into groups, for the one who numbers them. A plan may not be in one group with a
// plan whose sampled token it needs: the first loop of the whole group comes before the last loop,
// which samples.
class OpenGroup {
 public:
  // `size`: plans of a full group.
  explicit OpenGroup(int size) : size_(size) {}

  bool full() const { return count_ == size_; }
  // Whether the plan, the next of the log, may join.
  bool Accepts(const StepPlan& plan) const;
  void Add(const StepPlan& plan);
  // The next plan begins a new group.
  void End() { count_ = 0; }

 private:
  int size_;
  int count_ = 0;
  PlanNumber first_;
};

// How many plans a group has at most.
constexpr int GroupSize(int ranks, int loops) { return loops == 1 ? 1 : ranks; }

// Marks the groups of `plans` plans that all are known from the start and need no sampled token:
// entry i tells whether plan i ends its group.
std::vector<bool> FullGroups(int plans, int group_size);

// How long one plan takes on one rank in one loop.
using LoopSeconds = std::function<double(size_t plan, int rank, int loop)>;

// When the last plan leaves the last rank, if all ranks work in LoopOrder, nothing but input makes
// them wait and passing it on takes no time: the max-plus recurrence
//   end(rank, item) = max(end(rank, item before in the order), end(rank before, item)) + seconds
// where before rank 0 in loop l comes the last rank in loop l - 1. `ends_group` has an entry per
// plan; the last one is true.
double PipelineMakespan(const std::vector<bool>& ends_group, int ranks, int loops,
                        const LoopSeconds& seconds);

}  // namespace longspan::plan
