// A backend that computes nothing and takes the time that a function says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ops/backend.h"
#include "plan/attention_cost.h"

namespace longspan::backend::emulated {

// Seconds. Functions are called from the rank's threads, one at a time.
struct EmulatedTimes {
  // Of the rank's `layer`-th layer, counted over all its ranges, for slices of whole sequences.
  std::function<double(int layer, std::span<const plan::RowRange> slices)> layer_s;
  // Of the head and sampling, for so many rows; may be empty.
  std::function<double(int64_t rows)> head_s;
  // Over so many context-parallel ranks the rows of a slice are divided.
  int rows_divided = 1;
};

// The slice of which a rank has `rows` >= 1 rows, at positions from `first` to `last`, where as
// many are with each of `ranks`: as long, and about as deep in the middle. Both splits
// (plan/token_split.h) deal rows evenly about the middle of a slice, so that it is the same slice
// for all ranks but for less than `ranks` positions.
plan::RowRange SliceOfAllRanks(int64_t first, int64_t last, int64_t rows, int ranks);

// Every op is there and, but for attention (grouped and latent) and the head, none costs time or
// writes anything: activations stay what the memory holds. Sampling draws `token` for every row,
// with a log-probability of 0. Weights have no bytes.
//
// A queue works like a device's: attention adds to what is queued, Synchronize and Download sleep
// until the instant at which all of it is done. That instant is absolute, so a step's layers sum
// exactly; a thread that woke up late from one step gets the delay back where the next one follows
// within a millisecond, so that a chain of steps sums exactly too. Time that the caller spends
// between steps counts. The threads of a queue are not started, and its cores are not pinned.
//
// A layer is known by its cache: a queue counts caches in the order in which it first sees them.
std::unique_ptr<ops::Backend> CreateEmulatedBackend(EmulatedTimes times, int32_t token = 0);

}  // namespace longspan::backend::emulated
