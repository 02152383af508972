// How long a stage works on a chunk of a prompt, as a value that planner, engine and simulator
// share.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layer_split.h"

namespace longspan::plan {

// What the time of a step grows with. Chunks and decode rows of one step add up.
struct StepWork {
  // Chunks: positions before them, their own positions, and row-position pairs counted as 2 L x +
  // x^2 for x rows behind L positions, which is twice the pairs.
  double prefix_tokens = 0;
  double tokens = 0;
  double pairs = 0;  // all that there are
  // With attention to `top_k` selected positions, pairs falls into two: rows at positions below
  // top_k attend to all (dense_pairs); a row behind them has 2 top_k (selected_pairs). Without,
  // all pairs are dense.
  double dense_pairs = 0;
  double selected_pairs = 0;

  double decode_rows = 0;
  double decode_positions = 0;  // that the decode rows attend to

  // `top_k`: 0 where attention is to all positions.
  void AddChunk(int64_t begin, int64_t end, int64_t top_k);
  void AddDecodeRow(int64_t position, int64_t top_k);
};

// Seconds that one stage computes for one step: what does not wait for other stages. A chunk of x
// rows behind L positions takes
//   t(L, x) = per_step + per_prefix_token L + per_token x + per_pair (2 L x + x^2)
// with attention to all positions. With an indexer that selects top_k positions,
// per_index_pair (2 L x + x^2) comes on top, and per_pair holds for rows at positions below top_k
// only; from there on a row takes per_selected_pair 2 top_k.
//
// No coefficient is below 0. So a chunk that begins at the same position takes no less the longer
// it is, and one of the same length no less the later it begins (selected pairs being at least as
// expensive as others).
//
// The work adds up exactly: the parts per token, pair, index pair and selected pair of
// [begin, middle) and of [middle, end) are those of [begin, end). What a cut at `middle` costs is
// per_step + per_prefix_token middle. (The form is that of ROCm/ATOM, with terms for DeepSeek
// sparse attention.)
struct ChunkCost {
  double per_step = 0;
  double per_prefix_token = 0;
  double per_token = 0;
  double per_pair = 0;
  double per_index_pair = 0;
  double per_selected_pair = 0;
  double per_decode_row = 0;
  double per_decode_position = 0;
  int64_t top_k = 0;  // 0: attention to all positions

  // Rows [begin, end) of one sequence in a step of their own; begin < end.
  double Seconds(int64_t begin, int64_t end) const;
  // A step with several slices. `work` counted with this top_k.
  double Seconds(const StepWork& work) const;

  friend bool operator==(const ChunkCost&, const ChunkCost&) = default;
};

// Term by term: of the same work done by both, and by several that share it. Both of one top_k.
ChunkCost Sum(const ChunkCost& a, const ChunkCost& b);
ChunkCost Largest(const ChunkCost& a, const ChunkCost& b);
ChunkCost Scaled(const ChunkCost& cost, double factor);
// With 0 for coefficients that are below 0 or no number.
ChunkCost WithoutNonsense(const ChunkCost& cost);

// The stages of a pipeline: entry v * P + r of `stages` is what rank r computes in loop v, as in
// SplitLayers. shape.stages() entries.
struct PipelineCost {
  PipelineShape shape;
  std::vector<ChunkCost> stages;

  const ChunkCost& at(int rank, int loop) const {
    return stages[static_cast<size_t>(loop) * static_cast<size_t>(shape.ranks) +
                  static_cast<size_t>(rank)];
  }
};

}  // namespace longspan::plan
