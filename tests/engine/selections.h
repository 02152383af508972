// What indexers may select otherwise than Hugging Face transformers does, and why.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/golden.h"
#include "tests/engine/indexer_tap.h"

namespace longspan::testing {

// By layer, for the last token of a golden case.
std::vector<IndexerRun> LastRuns(const std::string& model, const std::string& backend,
                                 tensor::DType dtype, const GoldenCase& golden);

// Fails the test where a selection in float32 is not the golden one, but for positions whose score
// is within 1e-5 of the threshold (the lowest score that is selected), relative to it.
void ExpectGoldenSelections(const GoldenCase& golden, const std::vector<IndexerRun>& runs);

// Fails the test where a selection in bfloat16 has less than 97% of the positions of float32, or
// others that are farther below the threshold of float32 than the roundings of activations explain.
void ExpectBf16Selections(const GoldenCase& golden, const std::vector<IndexerRun>& wide,
                          const std::vector<IndexerRun>& narrow);

}  // namespace longspan::testing
