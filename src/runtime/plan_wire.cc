// The binary form of step plans.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/wire.h"
#include "runtime/wire_frame.h"

namespace longspan::runtime {
namespace {

using plan::TokenSource;

// A literal is its token; a sampled one is -1, then the slot and the plan.
void WriteTokenSource(base::ByteWriter& writer, const TokenSource& token) {
  writer.Write(token.literal);
  if (token.is_literal()) return;
  writer.Write(token.slot);
  writer.Write(token.plan.value);
}

TokenSource ReadTokenSource(base::ByteReader& reader) {
  TokenSource token;
  token.literal = reader.Read<int32_t>();
  if (token.is_literal()) return token;
  token.slot = reader.Read<uint32_t>();
  token.plan.value = reader.Read<uint64_t>();
  return token;
}

void WriteSampling(base::ByteWriter& writer, const spec::SamplingSpec& sampling) {
  writer.Write(sampling.temperature);
  writer.Write(sampling.top_k);
  writer.Write(sampling.top_p);
  writer.Write(sampling.min_p);
  writer.Write(sampling.seed);
  writer.Write(sampling.repetition_penalty);
  writer.Write(sampling.frequency_penalty);
  writer.Write(sampling.presence_penalty);
  writer.Write(sampling.top_logprobs);
  writer.Write(static_cast<uint32_t>(sampling.logit_bias.size()));
  for (const auto& [token, bias] : sampling.logit_bias) {
    writer.Write(token);
    writer.Write(bias);
  }
}

spec::SamplingSpec ReadSampling(base::ByteReader& reader) {
  spec::SamplingSpec sampling;
  sampling.temperature = reader.Read<double>();
  sampling.top_k = reader.Read<int>();
  sampling.top_p = reader.Read<double>();
  sampling.min_p = reader.Read<double>();
  sampling.seed = reader.Read<uint64_t>();
  sampling.repetition_penalty = reader.Read<double>();
  sampling.frequency_penalty = reader.Read<double>();
  sampling.presence_penalty = reader.Read<double>();
  sampling.top_logprobs = reader.Read<int>();
  const uint32_t biased = reader.ReadCount(sizeof(int32_t) + sizeof(float));
  for (uint32_t i = 0; i < biased; ++i) {
    const auto token = reader.Read<int32_t>();
    sampling.logit_bias.emplace_back(token, reader.Read<float>());
  }
  return sampling;
}

void WriteSlice(base::ByteWriter& writer, const plan::Slice& slice) {
  writer.Write(slice.sequence.value);
  writer.Write(slice.begin);
  writer.Write(static_cast<uint32_t>(slice.tokens.size()));
  for (const TokenSource& token : slice.tokens) WriteTokenSource(writer, token);
  writer.WriteVector<kv::PageId>(slice.new_pages);
}

plan::Slice ReadSlice(base::ByteReader& reader) {
  plan::Slice slice;
  slice.sequence.value = reader.Read<int64_t>();
  slice.begin = reader.Read<int64_t>();
  slice.tokens.resize(reader.ReadCount(sizeof(int32_t)));
  for (TokenSource& token : slice.tokens) token = ReadTokenSource(reader);
  slice.new_pages = reader.ReadVector<kv::PageId>();
  return slice;
}

void WriteLogitsRow(base::ByteWriter& writer, const plan::LogitsRow& row) {
  writer.Write(row.slice);
  writer.Write(row.position);
  writer.Write(static_cast<uint8_t>((row.sample ? 1 : 0) | (row.return_logits ? 2 : 0) |
                                    (row.return_hidden ? 4 : 0)));
  writer.Write(row.score_token);
}

// `flags_known` becomes false where the row has a flag that this version does not know.
plan::LogitsRow ReadLogitsRow(base::ByteReader& reader, bool& flags_known) {
  plan::LogitsRow row;
  row.slice = reader.Read<uint32_t>();
  row.position = reader.Read<int64_t>();
  const auto flags = reader.Read<uint8_t>();
  flags_known = flags_known && flags < 8;
  row.sample = (flags & 1) != 0;
  row.return_logits = (flags & 2) != 0;
  row.return_hidden = (flags & 4) != 0;
  row.score_token = reader.Read<int32_t>();
  return row;
}

// Positions are 32-bit numbers in the tables of kernels.
constexpr int64_t kMostPositions = INT32_MAX;

base::Status CheckStart(const plan::StepPlan& plan, const plan::SequenceStart& start) {
  const auto negative = [](int32_t token) { return token < 0; };
  if (std::any_of(start.prompt.begin(), start.prompt.end(), negative) ||
      std::any_of(start.output.begin(), start.output.end(), negative))
    return base::DataLoss("plan {} starts a sequence with a negative token", plan.number.value);
  if (const base::Status status = spec::CheckSampling(start.sampling); !status.ok())
    return base::DataLoss("plan {} starts a sequence whose {}", plan.number.value,
                          status.message());
  return base::OkStatus();
}

base::Status CheckSlice(const plan::StepPlan& plan, const plan::Slice& slice) {
  if (slice.begin < 0 || slice.tokens.empty() ||
      slice.begin > kMostPositions - static_cast<int64_t>(slice.tokens.size()))
    return base::DataLoss("plan {} has an empty slice or a position that cannot be",
                          plan.number.value);
  for (const kv::PageId page : slice.new_pages)
    if (page < 0) return base::DataLoss("plan {} has a negative page", plan.number.value);
  for (const TokenSource& token : slice.tokens)
    if (token.literal < -1 || (!token.is_literal() && token.plan >= plan.number))
      return base::DataLoss("plan {} has a token that no earlier plan samples", plan.number.value);
  return base::OkStatus();
}

// What no leader writes and a rank could not apply.
base::Status CheckPlan(const plan::StepPlan& plan) {
  for (const plan::SequenceStart& start : plan.started)
    LONGSPAN_RETURN_IF_ERROR(CheckStart(plan, start));
  for (const plan::Slice& slice : plan.slices) LONGSPAN_RETURN_IF_ERROR(CheckSlice(plan, slice));
  const plan::LogitsRow* before = nullptr;
  for (const plan::LogitsRow& row : plan.logits_rows) {
    if (row.slice >= plan.slices.size() || row.position < plan.slices[row.slice].begin ||
        row.position >= plan.slices[row.slice].end())
      return base::DataLoss("plan {} lists a row outside its slices", plan.number.value);
    if (before != nullptr &&
        std::pair(row.slice, row.position) <= std::pair(before->slice, before->position))
      return base::DataLoss("plan {} lists rows out of order", plan.number.value);
    if (row.score_token < -1)
      return base::DataLoss("plan {} scores a negative token", plan.number.value);
    before = &row;
  }
  return base::OkStatus();
}

}  // namespace

Frame EncodePlan(const plan::StepPlan& plan) {
  base::ByteWriter writer = BeginFrame(FrameKind::kPlan);
  writer.Write(plan.number.value);
  writer.Write(plan.epoch.value);
  writer.Write(static_cast<uint8_t>(plan.ends_group ? 1 : 0));
  writer.WriteVector<plan::SequenceId>(plan.released);
  writer.Write(static_cast<uint32_t>(plan.started.size()));
  for (const plan::SequenceStart& start : plan.started) {
    writer.Write(start.sequence.value);
    WriteSampling(writer, start.sampling);
    writer.WriteVector<int32_t>(start.prompt);
    writer.WriteVector<int32_t>(start.output);
  }
  writer.Write(static_cast<uint32_t>(plan.slices.size()));
  for (const plan::Slice& slice : plan.slices) WriteSlice(writer, slice);
  writer.Write(static_cast<uint32_t>(plan.logits_rows.size()));
  for (const plan::LogitsRow& row : plan.logits_rows) WriteLogitsRow(writer, row);
  return writer.Take();
}

base::Result<plan::StepPlan> DecodePlan(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kPlan));
  plan::StepPlan plan;
  plan.number.value = reader.Read<uint64_t>();
  plan.epoch.value = reader.Read<uint32_t>();
  const auto ends_group = reader.Read<uint8_t>();
  plan.ends_group = ends_group != 0;
  bool flags_known = ends_group < 2;
  plan.released = reader.ReadVector<plan::SequenceId>();
  plan.started.resize(reader.ReadCount(sizeof(int64_t)));
  for (plan::SequenceStart& start : plan.started) {
    start.sequence.value = reader.Read<int64_t>();
    start.sampling = ReadSampling(reader);
    start.prompt = reader.ReadVector<int32_t>();
    start.output = reader.ReadVector<int32_t>();
  }
  plan.slices.resize(reader.ReadCount(2 * sizeof(int64_t)));
  for (plan::Slice& slice : plan.slices) slice = ReadSlice(reader);
  plan.logits_rows.resize(reader.ReadCount(2 * sizeof(int64_t)));
  for (plan::LogitsRow& row : plan.logits_rows) row = ReadLogitsRow(reader, flags_known);
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  if (!flags_known) return base::DataLoss("plan {} has unknown flags", plan.number.value);
  LONGSPAN_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace longspan::runtime
