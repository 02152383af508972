#include "tests/support/sampling_rows.h"

#include <bit>

namespace longspan::support {

using tensor::DType;
using tensor::View;

ops::SamplingTables UploadSampling(TestDevice& device, std::span<const SamplingRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto floats = [&](double spec::SamplingSpec::*member) {
    std::vector<float> values;
    values.reserve(rows.size());
    for (const SamplingRow& row : rows) values.push_back(static_cast<float>(row.spec.*member));
    return device.Floats(values, DType::kF32, {count});
  };
  std::vector<int32_t> top_k;
  std::vector<int64_t> seeds;
  std::vector<int64_t> positions;
  std::vector<int32_t> history_begin = {0};
  std::vector<int32_t> history_tokens;
  std::vector<int32_t> history_counts;
  for (const SamplingRow& row : rows) {
    top_k.push_back(row.spec.top_k);
    seeds.push_back(std::bit_cast<int64_t>(row.spec.seed));
    positions.push_back(row.position);
    history_tokens.insert(history_tokens.end(), row.history_tokens.begin(),
                          row.history_tokens.end());
    history_counts.insert(history_counts.end(), row.history_counts.begin(),
                          row.history_counts.end());
    history_begin.push_back(static_cast<int32_t>(history_tokens.size()));
  }
  const auto entries = static_cast<int64_t>(history_tokens.size());
  return {.temperature = floats(&spec::SamplingSpec::temperature),
          .top_k = device.Ints(top_k, {count}),
          .top_p = floats(&spec::SamplingSpec::top_p),
          .min_p = floats(&spec::SamplingSpec::min_p),
          .seed = device.Longs(seeds, {count}),
          .position = device.Longs(positions, {count}),
          .repetition_penalty = floats(&spec::SamplingSpec::repetition_penalty),
          .frequency_penalty = floats(&spec::SamplingSpec::frequency_penalty),
          .presence_penalty = floats(&spec::SamplingSpec::presence_penalty),
          .history_begin = device.Ints(history_begin, {count + 1}),
          .history_tokens = device.Ints(history_tokens, {entries}),
          .history_counts = device.Ints(history_counts, {entries})};
}

Sampled SampleRows(TestDevice& device, std::span<const float> logits,
                   std::span<const SamplingRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto vocab_size = count == 0 ? 1 : static_cast<int64_t>(logits.size()) / count;
  const View tokens = device.Zeros(DType::kI32, {count});
  const View logprobs = device.Zeros(DType::kF32, {count});
  device.Run(device.ops().sample,
             {.logits = device.Floats(logits, DType::kF32, {count, vocab_size}),
              .tables = UploadSampling(device, rows),
              .tokens = tokens,
              .logprobs = logprobs});
  return {device.ReadInts(tokens), device.ReadFloats(logprobs)};
}

}  // namespace longspan::support
