// Chunk sequences of one stage under a cap on a chunk's time.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/chunk_cost.h"
#include "plan/chunk_planner.h"

namespace longspan::plan {

// The chunks of a prompt under a cap, cut from the end: each begins as early as the cap allows. No
// other sequence under the cap has fewer chunks, nor one with as many a smaller sum of what lies
// before the chunks. Since the work itself does not depend on the cuts, none takes less time. A
// page that alone is above the cap is a chunk.
struct CappedChunks {
  bool possible = false;  // every page is under the cap
  int64_t count = 0;
  double sum = 0;      // seconds of all chunks
  double longest = 0;  // of one: any cap from here on to next_cap gives the same chunks
  double next_cap = 0;
};

class ChunkCapper {
 public:
  // The request's max_seconds is not looked at: caps are.
  ChunkCapper(const ChunkCost& cost, const ChunkRequest& request);

  CappedChunks Cut(double cap) const { return Cut(cap, nullptr); }
  std::vector<int64_t> Ends(double cap) const;

  // The least cap that is possible, and one from which on nothing changes.
  double least_cap() const { return least_cap_; }
  double most_cap() const { return most_cap_; }

  struct Choice {
    double cap = 0;
    int64_t chunks = 0;  // that were cut to find it
  };
  // The chunks that minimise sum + drain_weight * longest, or the request's longest_before_s where
  // that is longer, with no chunk above `most`: the best cap, to a share of `tolerance`, or the
  // best of those that 150,000 chunks were cut for. `most` itself where a page is above it.
  Choice BestCap(double drain_weight, double most, double tolerance) const;

  // So many chunks of about the same time, whatever their cap; empty where the request's limit on
  // tokens or the number of pages does not allow that.
  std::vector<int64_t> EvenEnds(int64_t count) const;

  // The least cap, to a share of 1/1000, that allows `count` chunks.
  double CapForCount(int64_t count, double most) const;

 private:
  CappedChunks Cut(double cap, std::vector<int64_t>* begins) const;
  int64_t EarliestBegin(int64_t end, double cap) const;
  int64_t PageBefore(int64_t position) const;  // the border before it, or the request's begin
  double LeastBegin(int64_t end, double cap) const;

  ChunkCost cost_;
  ChunkRequest request_;
  double least_cap_ = 0;
  double most_cap_ = 0;
};

}  // namespace longspan::plan
