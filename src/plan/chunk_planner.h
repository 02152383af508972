// Into which chunks a prompt is cut so that a pipeline is done with it soonest.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plan/chunk_cost.h"

namespace longspan::plan {

struct ChunkRequest {
  // Positions [begin, end) of one prompt; those before `begin` are cached or computed.
  int64_t begin = 0;
  int64_t end = 0;
  // Chunks end at multiples of this, but for the last one. `begin` may be anything.
  int64_t page_size = 64;
  // Of a chunk. Where less than a page is allowed, it is a page.
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
  double max_seconds = std::numeric_limits<double>::infinity();  // on the slowest rank
  // The longest step that the ranks still work on takes so long on the slowest rank, in all its
  // loops, whether it is of this prompt or not. The last stages are as far behind the first one as
  // it makes them: chunks up to its length make no drain longer.
  double longest_before_s = 0;
  // Which part of the pipeline's drain is on this prompt's account, 0 to 1: its own share of the
  // work that waits. 1 for a prompt that is alone; see PlanChunks.
  double drain_share = 1;
};

struct ChunkSequence {
  std::vector<int64_t> ends;  // of the chunks, ascending; the last one is the request's end
  double work_s = 0;          // of the rank that works longest, for all chunks
  double longest_s = 0;       // of a chunk on that rank
  double makespan_s = 0;      // from the first rank's start with them to the last one's end
};

// The page-aligned sequence that minimises
//   (1 - drain_share) work_s + drain_share makespan_s
// within the limits. Alone, a prompt is done after its makespan, which for P identical stages
// without loops is sum t_k + (P - 1) max t_k (as in TeraPipe, arXiv:2102.07988); with loops and for
// other stages it is that of PipelineMakespan with full groups. Prompts that follow each other
// without a gap fill all drains but the last: n of them with the same longest chunk take
// sum of all t + (P - 1) max t together, so each weighs the drain by its share of that work.
//
// Identical stages without loops: the optimum for up to 2,048 pages (of many sequences that differ
// by less than a millionth one of the best), within 0.1% of it above, as long as a prefix token
// costs no more than a token of the chunk. Others: the best of the optima for the slowest rank and
// for the mean of all, of plans with even times, and of what small changes make of them, measured
// by the recurrence. So ranks whose learnt costs differ by little get a plan that differs by
// little.
//
// Behind a longer step than the best chunks (longest_before_s) they are planned for its time. They
// are never planned for more on its account: each of many prompts would add a little, and the next
// ones take that for granted.
//
// Of equal arguments the same sequence. Any cost gives a valid one; coefficients that are no
// numbers or below 0 count as 0.
ChunkSequence PlanChunks(const PipelineCost& cost, const ChunkRequest& request);

// What that sequence of chunks takes.
ChunkSequence Predict(const PipelineCost& cost, int64_t begin, std::vector<int64_t> ends);

}  // namespace longspan::plan
