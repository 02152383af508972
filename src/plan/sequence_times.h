// How long sequences of chunks take on a pipeline: what a search for one calls many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/chunk_cost.h"
#include "plan/chunk_planner.h"

namespace longspan::plan {

// The recurrence of PipelineMakespan for full groups, for sequences of chunks of one prompt.
class SequenceTimes {
 public:
  // Keeps a reference to the cost.
  explicit SequenceTimes(const PipelineCost& cost);

  // Whether all stages cost the same.
  bool identical() const { return identical_; }
  // Of all loops of a rank.
  const std::vector<ChunkCost>& rank_costs() const { return rank_costs_; }

  // Fills in the times of the chunks from `begin` to the sequence's ends. `before_s`:
  // ChunkRequest::longest_before_s.
  void Measure(int64_t begin, double before_s, ChunkSequence& sequence);

 private:
  void FillSeconds(int64_t begin, const std::vector<int64_t>& ends);
  double Makespan(size_t chunks, double before_s);

  const PipelineCost& cost_;
  bool identical_;
  std::vector<ChunkCost> rank_costs_;
  std::vector<double> rank_end_;
  std::vector<double> seconds_;  // [chunk][stage], of identical stages [chunk]
  std::vector<double> passed_;   // of a group's chunks: when it left the last rank
  std::vector<double> rank_sum_;
};

}  // namespace longspan::plan
