// What the indexers inside an engine select: a whole engine over a backend whose index_select is
// listened to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tests/engine/engine_harness.h"

namespace longspan::testing {

// What a layer's indexer was given for the last token of a prompt, and what it selected. Where a
// layer attends to all positions without asking its indexer, they are what is selected, and there
// are neither queries nor keys.
struct IndexerRun {
  std::vector<int32_t> selected;  // ascending
  int64_t heads = 0;
  int64_t dim = 0;
  float scale = 1;
  std::vector<float> queries;       // [heads, dim]
  std::vector<float> head_weights;  // [heads]
  std::vector<float> keys;          // [positions, dim]

  bool asked() const { return !keys.empty(); }
  int64_t positions() const { return static_cast<int64_t>(keys.size()) / dim; }
  const float* query(int64_t head) const { return queries.data() + head * dim; }
  const float* key(int64_t position) const { return keys.data() + position * dim; }

  // Of every position, in double.
  std::vector<double> Scores() const;
};

// The selections of all rows: [layer][position], ascending; all positions where no indexer was
// asked.
using Selections = std::vector<std::vector<std::vector<int32_t>>>;

struct TapOptions {
  std::filesystem::path model;
  std::string backend = "reference";
  tensor::DType dtype = tensor::DType::kF32;
  bool dummy = false;  // weights
  int64_t chunk_tokens = 512;
  // Several divide the cache; of them only what they select is told.
  int context_ranks = 1;
  // What every row attends to, whatever its indexer selects; null: what it selects.
  const Selections* prescribed = nullptr;
};
struct TappedRun {
  Scores scores;
  std::vector<IndexerRun> last;  // by layer
  Selections selections;         // by the indexers
};

// A prompt in one stage; `positions` get logits.
TappedRun RunTapped(const TapOptions& options, const std::vector<int32_t>& ids,
                    std::vector<int64_t> positions);

}  // namespace longspan::testing
