// DeepSeek with odd sizes and dummy weights: the fast backend against the reference.
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/dummy_models.h"
#include "tests/engine/golden.h"
#include "tests/engine/indexer_tap.h"

namespace longspan::testing {

struct OddDeepseek {
  const char* name;
  DummyDeepseek model;
};

inline std::vector<int64_t> AllPositions(int64_t length) {
  std::vector<int64_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

inline std::vector<int32_t> OddIds(int64_t length) {
  return RandomIds(length, kDummyVocab, static_cast<uint64_t>(length));
}

// What the reference says about a prompt, in the form of a golden case.
inline GoldenCase AsGolden(std::vector<int32_t> ids, Scores scores) {
  std::string name = std::to_string(ids.size()) + " tokens";
  return {.name = std::move(name),
          .ids = std::move(ids),
          .positions = std::move(scores.positions),
          .logits = std::move(scores.logits),
          .hidden = std::move(scores.hidden)};
}

// The rule of float32 (golden_logits_test.cc).
inline void ExpectNear(const Scores& scores, const GoldenCase& golden, const std::string& what) {
  const Deviation deviation = Compare(scores, golden);
  EXPECT_LE(deviation.largest, 1e-4) << golden.name << ", " << what;
  EXPECT_LE(deviation.hidden, 1e-4) << golden.name << ", " << what;
}

// V3.2 on `cpu`, when it attends to what the indexers of `reference` select: with random weights
// one other position moves the logits by percents. The selections of `cpu` itself may be others in
// few rows only, where scores tie up to roundings.
inline void ExpectNearWithSelections(const std::filesystem::path& folder, int64_t length,
                                     std::vector<int64_t> positions, int64_t chunk) {
  const auto ids = OddIds(length);
  TappedRun want = RunTapped({.model = folder, .dummy = true}, ids, positions);
  const TappedRun got = RunTapped({.model = folder,
                                   .backend = "cpu",
                                   .dummy = true,
                                   .chunk_tokens = chunk,
                                   .prescribed = &want.selections},
                                  ids, std::move(positions));
  ExpectNear(got.scores, AsGolden(ids, std::move(want.scores)), std::to_string(chunk) + " at once");
  int64_t others = 0;
  for (size_t layer = 0; layer < want.selections.size(); ++layer)
    for (int64_t position = 0; position < length; ++position)
      others += got.selections[layer][position] != want.selections[layer][position] ? 1 : 0;
  EXPECT_LE(others, length * static_cast<int64_t>(want.selections.size()) / 500) << length;
}

}  // namespace longspan::testing
