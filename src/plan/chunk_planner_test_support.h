// What plans are compared with: random pipelines, and all ways to cut a short prompt.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "plan/chunk_planner.h"
#include "plan/pipeline_schedule.h"

namespace longspan::plan::testing {

inline double Objective(const ChunkSequence& chunks, const ChunkRequest& request) {
  return (1 - request.drain_share) * chunks.work_s + request.drain_share * chunks.makespan_s;
}

class RandomModels {
 public:
  struct Kind {
    int loops = 1;
    int pages = 8;
    bool unequal = false;  // the stages
  };

  explicit RandomModels(uint32_t seed) : random_(seed) {}

  // Every fourth has sparse attention, every sixth shares its drain; some begin behind a prefix or
  // end within a page.
  std::pair<PipelineCost, ChunkRequest> Next(const Kind& kind) {
    const int number = count_++;
    ChunkCost cost = {.per_step = Between(1e-4, 3e-2),
                      .per_token = Between(1e-6, 1e-4),
                      .per_pair = Between(1e-12, 1e-7)};
    if (number % 2 == 0) cost.per_prefix_token = cost.per_token * Between(1e-3, 1);
    if (number % 4 == 3) {
      cost.top_k = 64 * static_cast<int64_t>(1 + random_() % 12);
      cost.per_index_pair = cost.per_pair * Between(0.01, 0.5);
      cost.per_selected_pair = cost.per_pair * Between(1, 4);
    }
    PipelineCost pipeline{
        .shape = {.ranks = 2 + static_cast<int>(random_() % 7), .loops = kind.loops}, .stages = {}};
    for (int stage = 0; stage < pipeline.shape.stages(); ++stage) {
      ChunkCost part = cost;
      if (kind.unequal) {
        part.per_step *= Between(0.8, 1.25);
        part.per_token *= Between(0.8, 1.25);
        part.per_pair *= Between(0.8, 1.25);
      }
      pipeline.stages.push_back(part);
    }
    ChunkRequest request;
    if (number % 3 == 0) request.begin = 64 * static_cast<int64_t>(random_() % 40);
    request.end = request.begin + int64_t{64} * kind.pages;
    if (number % 5 == 0) request.end -= static_cast<int64_t>(random_() % 60);
    if (number % 6 == 0) request.drain_share = 0.3;
    return {pipeline, request};
  }

 private:
  double Between(double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random_));
  }

  std::mt19937 random_;
  int count_ = 0;
};

// The least objective of all page-aligned splits, by the recurrence written out once more: times
// of all chunks in a table, so that 18 pages are bearable.
class AllSplits {
 public:
  AllSplits(const PipelineCost& cost, const ChunkRequest& request)
      : cost_(cost), request_(request), pages_((request.end - request.begin + 63) / 64) {
    for (int64_t first = 0; first < pages_; ++first)
      for (int64_t last = first + 1; last <= pages_; ++last)
        for (const ChunkCost& stage : cost.stages)
          seconds_.push_back(stage.Seconds(Border(first), Border(last)));
    size_t place = 0;
    places_.resize(static_cast<size_t>((pages_ + 1) * (pages_ + 1)));
    for (int64_t first = 0; first < pages_; ++first)
      for (int64_t last = first + 1; last <= pages_; ++last, place += cost.stages.size())
        places_[static_cast<size_t>(first * (pages_ + 1) + last)] = place;
  }

  double Best() {
    double best = std::numeric_limits<double>::infinity();
    for (uint64_t cuts = 0; cuts < uint64_t{1} << (pages_ - 1); ++cuts)
      best = std::min(best, Of(cuts));
    return best;
  }

 private:
  int64_t Border(int64_t page) const {
    return page == pages_ ? request_.end : request_.begin + 64 * page;
  }

  double Of(uint64_t cuts) {
    chunks_.clear();
    int64_t first = 0;
    for (int64_t page = 1; page <= pages_; ++page) {
      if (page < pages_ && (cuts >> (page - 1) & 1) == 0) continue;
      chunks_.push_back(&seconds_[places_[static_cast<size_t>(first * (pages_ + 1) + page)]]);
      first = page;
    }
    const auto ranks = static_cast<size_t>(cost_.shape.ranks);
    rank_end_.assign(ranks, 0.0);
    work_.assign(ranks, 0.0);
    const auto group = static_cast<size_t>(GroupSize(cost_.shape.ranks, cost_.shape.loops));
    for (size_t begin = 0; begin < chunks_.size(); begin += group)
      RunGroup(begin, std::min(chunks_.size(), begin + group));
    return (1 - request_.drain_share) * *std::max_element(work_.begin(), work_.end()) +
           request_.drain_share * rank_end_.back();
  }

  void RunGroup(size_t begin, size_t end) {
    const size_t ranks = rank_end_.size();
    passed_.assign(end - begin, 0.0);
    for (size_t loop = 0; loop < static_cast<size_t>(cost_.shape.loops); ++loop) {
      for (size_t chunk = begin; chunk < end; ++chunk) {
        double& passed = passed_[chunk - begin];
        for (size_t rank = 0; rank < ranks; ++rank) {
          const double seconds = chunks_[chunk][loop * ranks + rank];
          passed = rank_end_[rank] = std::max(passed, rank_end_[rank]) + seconds;
          work_[rank] += seconds;
        }
      }
    }
  }

  const PipelineCost& cost_;
  const ChunkRequest& request_;
  int64_t pages_;
  std::vector<double> seconds_;  // of the stages, chunk by chunk
  std::vector<size_t> places_;   // of chunks, [first page][last page]
  std::vector<const double*> chunks_;
  std::vector<double> rank_end_;
  std::vector<double> work_;
  std::vector<double> passed_;
};

inline double BestOfAllSplits(const PipelineCost& cost, const ChunkRequest& request) {
  return AllSplits(cost, request).Best();
}

}  // namespace longspan::plan::testing
