// How long a step takes, learnt from the steps before it.
#pragma once

#include <cstdint>
#include <deque>

namespace longspan::plan {

// The two measures of a step that its time grows with.
struct StepWork {
  double rows = 0;
  // Twice the pairs of a row and a position that it attends to: 2 L x + x^2 for x rows behind L
  // positions.
  double pairs = 0;

  // Rows [begin, end) of one sequence.
  void Add(int64_t begin, int64_t end);
};

// t = b rows + a pairs, of the slowest stage. b and a are fitted to the latest measurements by
// least squares of the relative error; a measurement far off (a machine that was busy) counts
// little, and neither b nor a is below 0.
//
// A plain value: the same measurements give the same predictions.
class StepTimeModel {
 public:
  // One step of prefill that took so long. Others do not belong here: what decoding alone costs is
  // another line. Takes no longer with more measurements.
  void Add(const StepWork& work, double seconds);

  // Before the first measurement a guess.
  double Seconds(const StepWork& work) const { return b_ * work.rows + a_ * work.pairs; }

  // How many rows behind `begin` positions take at most `seconds`: at most `most`, at least 0.
  int64_t LongestChunk(int64_t begin, int64_t most, double seconds) const;

 private:
  struct Measurement {
    StepWork work;
    double seconds = 0;
  };

  void Fit();

  double b_ = 1e-3;  // seconds per row
  double a_ = 0;     // seconds per pair
  std::deque<Measurement> measurements_;
};

}  // namespace longspan::plan
