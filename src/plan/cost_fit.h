// What chunks cost, learnt from the steps that were measured.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "plan/chunk_cost.h"

namespace longspan::plan {

// The cost of one stage, fitted by least squares of the relative error with no coefficient below 0,
// and started from a prior. What the measurements do not tell (say how a step's constant time
// compares with that of its tokens, while all chunks have one length) stays in the proportions of
// the prior; its level is measured from the first step on.
//
// A measurement far from what the others say counts little, and none at all if it is no positive
// number. When several in a row say the same other thing, the machine has changed: what was before
// is forgotten.
//
// The latest measurements are weighed anew with each one; older ones are in a sum that fades. So
// one measurement takes the same time whatever came before. A plain value: the same measurements
// give the same cost.
class CostFit {
 public:
  explicit CostFit(const ChunkCost& prior);

  // A step with a chunk, counted with the prior's top_k, took so long. Steps of decode rows alone
  // do not belong here: products of few rows are another line.
  void Add(const StepWork& work, double seconds);

  const ChunkCost& cost() const { return cost_; }
  int64_t measurements() const { return measurements_; }

  // The median error of the predictions for the latest steps since the machine has changed, as the
  // magnitude of the logarithm of measured over predicted time. Each was made before its step was
  // known; the first step has none. 1 before there are any.
  double error() const;
  // How many predictions that is of.
  int64_t predictions() const { return static_cast<int64_t>(errors_.size()); }

 private:
  static constexpr size_t kTerms = 8;
  using Terms = std::array<double, kTerms>;

  struct Measurement {
    Terms work{};
    double seconds = 0;
  };
  // Of weight sum_i (work_i coefficient_i - seconds)^2 / scale^2.
  struct Sums {
    std::array<Terms, kTerms> products{};
    Terms targets{};

    void Add(const Measurement& measurement, double weight, double scale);
    void Fade(double factor);
  };

  Terms Features(const StepWork& work) const;
  static ChunkCost CostOf(const Terms& coefficients, int64_t top_k);
  static double Product(const Terms& a, const Terms& b);
  void ForgetWhatWasBefore();
  void Fit();
  // By how much the latest measurements exceed these coefficients, in the middle.
  double Level(const Terms& coefficients) const;
  double Noise(const Terms& coefficients) const;

  Terms prior_{};
  Terms coefficients_{};
  ChunkCost cost_;
  int64_t measurements_ = 0;
  std::deque<Measurement> latest_;
  Sums older_;
  std::deque<double> errors_;  // signed logarithms, of predictions
  size_t errors_since_change_ = 0;
};

// The costs of all stages, learnt rank by rank.
class PipelineFit {
 public:
  explicit PipelineFit(PipelineCost prior);

  // `rank_seconds`: how long each rank of the pipeline worked on the step in all its loops.
  void Add(const StepWork& work, std::span<const double> rank_seconds);

  // A loop of a rank keeps the share of its rank's time that it had in the prior.
  const PipelineCost& cost() const { return cost_; }
  // Of a rank, all loops together.
  const std::vector<ChunkCost>& rank_costs() const { return rank_costs_; }
  // Of the rank that takes longest.
  double Seconds(const StepWork& work) const;
  double Seconds(int64_t begin, int64_t end) const;
  // How many rows behind `begin` positions fit into a step that has `work` already and is to take
  // at most so long on any rank: at most `most`, at least 0.
  int64_t LongestChunk(const StepWork& work, int64_t begin, int64_t most, double seconds) const;

  // Of the rank that is predicted worst.
  double error() const;
  int64_t measurements() const { return fits_.front().measurements(); }
  // Whether it tells another run more than its own first steps would: there were enough steps, and
  // they were predicted.
  bool IsWorthKeeping() const;
  int64_t top_k() const { return rank_costs_.front().top_k; }

 private:
  void TakeRank(size_t rank);

  PipelineCost prior_;
  std::vector<ChunkCost> prior_ranks_;
  std::vector<CostFit> fits_;  // by rank
  std::vector<ChunkCost> rank_costs_;
  PipelineCost cost_;
};

}  // namespace longspan::plan
