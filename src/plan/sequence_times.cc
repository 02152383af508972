#include "plan/sequence_times.h"

#include <algorithm>

#include "plan/pipeline_schedule.h"

namespace longspan::plan {

SequenceTimes::SequenceTimes(const PipelineCost& cost)
    : cost_(cost),
      identical_(std::all_of(cost.stages.begin(), cost.stages.end(),
                             [&](const ChunkCost& s) { return s == cost.stages.front(); })),
      rank_end_(static_cast<size_t>(cost.shape.ranks)) {
  for (int rank = 0; rank < cost.shape.ranks; ++rank) {
    ChunkCost sum = cost.at(rank, 0);
    for (int loop = 1; loop < cost.shape.loops; ++loop) sum = Sum(sum, cost.at(rank, loop));
    rank_costs_.push_back(sum);
  }
}

void SequenceTimes::FillSeconds(int64_t begin, const std::vector<int64_t>& ends) {
  const int64_t top_k = cost_.stages.front().top_k;
  seconds_.clear();
  for (const int64_t end : ends) {
    StepWork work;
    work.AddChunk(begin, end, top_k);
    if (identical_) {
      seconds_.push_back(cost_.stages.front().Seconds(work));
    } else {
      for (const ChunkCost& stage : cost_.stages) seconds_.push_back(stage.Seconds(work));
    }
    begin = end;
  }
}

double SequenceTimes::Makespan(size_t chunks, double before_s) {
  const auto ranks = static_cast<size_t>(cost_.shape.ranks);
  const auto loops = static_cast<size_t>(cost_.shape.loops);
  const auto group = static_cast<size_t>(GroupSize(cost_.shape.ranks, cost_.shape.loops));
  const size_t stride = identical_ ? 1 : ranks * loops;
  for (size_t rank = 0; rank < ranks; ++rank)
    rank_end_[rank] = static_cast<double>(rank) * before_s / static_cast<double>(loops);
  for (size_t first = 0; first < chunks; first += group) {
    const size_t last = std::min(chunks, first + group);
    passed_.assign(last - first, 0.0);
    for (size_t loop = 0; loop < loops; ++loop) {
      for (size_t chunk = first; chunk < last; ++chunk) {
        const double* seconds = &seconds_[chunk * stride + (identical_ ? 0 : loop * ranks)];
        double passed = passed_[chunk - first];
        for (size_t rank = 0; rank < ranks; ++rank) {
          passed = std::max(passed, rank_end_[rank]) + (identical_ ? *seconds : seconds[rank]);
          rank_end_[rank] = passed;
        }
        passed_[chunk - first] = passed;
      }
    }
  }
  return rank_end_.back();
}

void SequenceTimes::Measure(int64_t begin, double before_s, ChunkSequence& sequence) {
  const size_t chunks = sequence.ends.size();
  FillSeconds(begin, sequence.ends);
  sequence.work_s = sequence.longest_s = 0;
  if (identical_) {
    for (const double s : seconds_) {
      sequence.work_s += s * cost_.shape.loops;
      sequence.longest_s = std::max(sequence.longest_s, s * cost_.shape.loops);
    }
  } else {
    rank_sum_.assign(rank_end_.size(), 0.0);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      for (size_t rank = 0; rank < rank_sum_.size(); ++rank) {
        double s = 0;
        for (size_t stage = rank; stage < cost_.stages.size(); stage += rank_sum_.size())
          s += seconds_[chunk * cost_.stages.size() + stage];
        rank_sum_[rank] += s;
        sequence.longest_s = std::max(sequence.longest_s, s);
      }
    }
    sequence.work_s = *std::max_element(rank_sum_.begin(), rank_sum_.end());
  }
  sequence.makespan_s =
      identical_ && cost_.shape.loops == 1
          ? sequence.work_s + (cost_.shape.ranks - 1) * std::max(sequence.longest_s, before_s)
          : Makespan(chunks, before_s);
}

}  // namespace longspan::plan
