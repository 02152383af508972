#include "plan/exchange_volume.h"

namespace longspan::plan {
namespace {

// What goes ahead of the rows: their number, and that of their choices.
constexpr int64_t kAnnouncementBytes = 8;
// The number of an expert, and its weight.
constexpr int64_t kChoiceBytes = 8;

int64_t RowBytes(const ExpertVolume& volume) { return volume.hidden * volume.element; }

}  // namespace

double SumBytes(int64_t bytes, int ranks) {
  const auto all = static_cast<double>(bytes);
  if (bytes <= kOneStepSumBytes) return (ranks - 1) * all;
  return 2 * all * (ranks - 1) / ranks;
}

double TensorLayerBytes(int64_t rows, int64_t row_bytes, int ranks) {
  return 2 * SumBytes(rows * row_bytes, ranks);
}

int64_t ExpertLayerBytes(const ExpertVolume& volume, int64_t rows_in, int64_t rows_out) {
  return rows_in * (RowBytes(volume) + kChoiceBytes * volume.choices) +
         rows_out * RowBytes(volume) + kAnnouncementBytes * (volume.ranks - 1);
}

double MeanExpertRanks(const ExpertVolume& volume, int experts) {
  // A rank has none of a row's experts where all choices fall on the other ranks' ones.
  const int others = experts - experts / volume.ranks;
  double none = 1;
  for (int choice = 0; choice < volume.choices; ++choice)
    none *= static_cast<double>(others - choice) / (experts - choice);
  return volume.ranks * (1 - (volume.choices > others ? 0 : none));
}

double MeanExpertLayerBytes(const ExpertVolume& volume, double mean_ranks, int64_t rows) {
  // Of the rows that a rank gets, and of those that it sends, the own ones stay.
  const double moved =
      static_cast<double>(rows) * mean_ranks / volume.ranks * (volume.ranks - 1) / volume.ranks;
  return moved * static_cast<double>(2 * RowBytes(volume) + kChoiceBytes * volume.choices) +
         static_cast<double>(kAnnouncementBytes * (volume.ranks - 1));
}

}  // namespace longspan::plan
