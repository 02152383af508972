// Reference outputs that Hugging Face transformers computed in float32 from the stored weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/engine_harness.h"

namespace longspan::testing {

struct GoldenCase {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;  // of the rows of logits, ascending
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<float>> hidden;  // by depth, of the last position
  std::vector<int32_t> greedy;             // where the file has it
  std::string greedy_text;
  std::vector<std::vector<int32_t>> selected;  // by layer: what the last position's indexer selects
};

// The cases of rand-X ("n1", "n7", ...) or tiny-X ("text0", ..., "needle300", ...), shortest first.
std::vector<GoldenCase> ReadGolden(const std::string& model);

// How far computed rows are from the golden ones.
struct Deviation {
  double largest = 0;  // max |difference| / max |reference|, over all rows of the case
  double hidden = 0;   // the same for the worst depth's hidden row
  double mean = 0;     // mean |difference| / standard deviation of the row, averaged over the rows
  int flips = 0;       // rows whose argmax is another token whose logit is more than 0.08 standard
                       // deviations below the best
  int64_t rows = 0;
};
Deviation Compare(const Scores& scores, const GoldenCase& golden);

// How many of the reference's greedy ids come before its first near-tie, as the f32 backend sees
// them: from there on another arithmetic may write another text.
size_t IdsBeforeANearTie(engine::Engine& engine, const GoldenCase& golden);

}  // namespace longspan::testing
