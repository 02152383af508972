// What the ranks of a stage send each other, in bytes that one of them receives. What comm counts
// (comm::RankGroup::received_bytes) is this exactly where the arguments are whole steps'; per token
// it is what docs/parallelism.md tells.
#pragma once

#include <cstdint>

namespace longspan::plan {

// Received from other ranks of the stage, by the axis on which they divide the work.
struct AxisBytes {
  int64_t tensor = 0;
  int64_t context = 0;
  int64_t expert = 0;

  AxisBytes& operator+=(const AxisBytes& other) {
    tensor += other.tensor;
    context += other.context;
    expert += other.expert;
    return *this;
  }
  AxisBytes operator-(const AxisBytes& other) const {
    return {tensor - other.tensor, context - other.context, expert - other.expert};
  }
  friend bool operator==(const AxisBytes&, const AxisBytes&) = default;
};

// --- Tensor parallelism

// Up to so many bytes a sum goes from every rank to every other, in one step instead of two: the
// time of a step is more than what halving the bytes saves.
inline constexpr int64_t kOneStepSumBytes = int64_t{32} << 10;

// A sum of `bytes` over `ranks`, averaged over them.
double SumBytes(int64_t bytes, int ranks);

// A layer's two sums in a step of so many rows.
double TensorLayerBytes(int64_t rows, int64_t row_bytes, int ranks);

// --- Expert parallelism

struct ExpertVolume {
  int ranks = 1;        // that the experts are divided over
  int64_t hidden = 0;   // columns of a row,
  int64_t element = 0;  // of so many bytes
  int choices = 0;      // experts of a row
};

// A layer in a step in which so many rows come from other ranks, and so many go to other ranks; a
// row counts once for every rank that it goes to. It comes with the numbers and weights of its
// experts, comes back as one row of results, and both are announced.
int64_t ExpertLayerBytes(const ExpertVolume& volume, int64_t rows_in, int64_t rows_out);

// On how many of the ranks a row's experts are on average, if all choices are equally likely.
double MeanExpertRanks(const ExpertVolume& volume, int experts);

// A layer in a step whose rows, those of all ranks together, have their experts on `mean_ranks` of
// the ranks each, averaged over the ranks.
double MeanExpertLayerBytes(const ExpertVolume& volume, double mean_ranks, int64_t rows);

}  // namespace longspan::plan
