// Rows to sample: what each asks for, and its history.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sample.h"
#include "spec/sampling.h"
#include "tests/support/test_device.h"

namespace longspan::support {

struct SamplingRow {
  spec::SamplingSpec spec;
  int64_t position = 0;
  std::vector<int32_t> history_tokens = {};
  std::vector<int32_t> history_counts = {};  // in the output; as many
};

ops::SamplingTables UploadSampling(TestDevice& device, std::span<const SamplingRow> rows);

struct Sampled {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

// Draws from logits [rows, vocab].
Sampled SampleRows(TestDevice& device, std::span<const float> logits,
                   std::span<const SamplingRow> rows);

}  // namespace longspan::support
