// The binary form of step results.
#include "runtime/wire.h"
#include "runtime/wire_frame.h"

namespace longspan::runtime {
namespace {

void WriteTransfers(base::ByteWriter& writer,
                    const std::vector<plan::BoundaryTransfer>& transfers) {
  writer.Write(static_cast<uint32_t>(transfers.size()));
  for (const plan::BoundaryTransfer& transfer : transfers)
    for (const int64_t value : {transfer.posted, transfer.done, transfer.bytes})
      writer.Write(value);
}

std::vector<plan::BoundaryTransfer> ReadTransfers(base::ByteReader& reader) {
  std::vector<plan::BoundaryTransfer> transfers(reader.ReadCount(3 * sizeof(int64_t)));
  for (plan::BoundaryTransfer& transfer : transfers)
    for (int64_t* value : {&transfer.posted, &transfer.done, &transfer.bytes})
      *value = reader.Read<int64_t>();
  return transfers;
}

void WriteTiming(base::ByteWriter& writer, const plan::StageTiming& timing) {
  for (const int64_t value :
       {timing.start, timing.end, timing.kernels, timing.cpu, timing.wait, timing.transfer,
        timing.intake.taken, timing.intake.tables, timing.intake.posted})
    writer.Write(value);
  writer.Write(static_cast<uint32_t>(timing.spans.size()));
  for (const plan::StageSpan& span : timing.spans) {
    writer.Write(span.kind);
    writer.Write(span.start);
    writer.Write(span.end);
  }
  WriteTransfers(writer, timing.sends);
  WriteTransfers(writer, timing.receives);
  const plan::AxisBytes& exchanged = timing.exchanged;
  for (const int64_t value : {exchanged.tensor, exchanged.context, exchanged.expert})
    writer.Write(value);
}

base::Result<plan::StageTiming> ReadTiming(base::ByteReader& reader) {
  plan::StageTiming timing;
  for (int64_t* value :
       {&timing.start, &timing.end, &timing.kernels, &timing.cpu, &timing.wait, &timing.transfer,
        &timing.intake.taken, &timing.intake.tables, &timing.intake.posted})
    *value = reader.Read<int64_t>();
  timing.spans.resize(reader.ReadCount(sizeof(plan::SpanKind) + 2 * sizeof(int64_t)));
  for (plan::StageSpan& span : timing.spans) {
    span.kind = reader.Read<plan::SpanKind>();
    if (static_cast<int>(span.kind) >= plan::kSpanKinds)
      return base::DataLoss("a step result has the unknown kind of span {}",
                            static_cast<int>(span.kind));
    span.start = reader.Read<int64_t>();
    span.end = reader.Read<int64_t>();
  }
  timing.sends = ReadTransfers(reader);
  timing.receives = ReadTransfers(reader);
  plan::AxisBytes& exchanged = timing.exchanged;
  for (int64_t* value : {&exchanged.tensor, &exchanged.context, &exchanged.expert})
    *value = reader.Read<int64_t>();
  return timing;
}

void WriteRow(base::ByteWriter& writer, const plan::RowResult& row) {
  writer.Write(row.slot);
  writer.Write(row.token);
  writer.Write(row.logprob);
  writer.Write(static_cast<uint32_t>(row.top_logprobs.size()));
  for (const auto& [token, logprob] : row.top_logprobs) {
    writer.Write(token);
    writer.Write(logprob);
  }
  writer.WriteVector<float>(row.logits);
}

plan::RowResult ReadRow(base::ByteReader& reader) {
  plan::RowResult row;
  row.slot = reader.Read<uint32_t>();
  row.token = reader.Read<int32_t>();
  row.logprob = reader.Read<float>();
  row.top_logprobs.resize(reader.ReadCount(sizeof(int32_t) + sizeof(float)));
  for (auto& [token, logprob] : row.top_logprobs) {
    token = reader.Read<int32_t>();
    logprob = reader.Read<float>();
  }
  row.logits = reader.ReadVector<float>();
  return row;
}

}  // namespace

Frame EncodeResult(const plan::StepResult& result) {
  base::ByteWriter writer = BeginFrame(FrameKind::kResult);
  writer.Write(result.plan.value);
  writer.Write(result.epoch.value);
  writer.Write(result.rank);
  WriteTiming(writer, result.timing);
  writer.Write(static_cast<uint32_t>(result.rows.size()));
  for (const plan::RowResult& row : result.rows) WriteRow(writer, row);
  writer.Write(static_cast<uint32_t>(result.hidden.size()));
  for (const plan::HiddenRow& row : result.hidden) {
    writer.Write(row.slot);
    writer.Write(row.depth);
    writer.WriteVector<float>(row.values);
  }
  WriteStatus(writer, result.status);
  return writer.Take();
}

base::Result<plan::StepResult> DecodeResult(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kResult));
  plan::StepResult result;
  result.plan.value = reader.Read<uint64_t>();
  result.epoch.value = reader.Read<uint32_t>();
  result.rank = reader.Read<int32_t>();
  LONGSPAN_ASSIGN_OR_RETURN(result.timing, ReadTiming(reader));
  result.rows.resize(reader.ReadCount(3 * sizeof(int32_t)));
  for (plan::RowResult& row : result.rows) row = ReadRow(reader);
  result.hidden.resize(reader.ReadCount(3 * sizeof(int32_t)));
  for (plan::HiddenRow& row : result.hidden) {
    row.slot = reader.Read<uint32_t>();
    row.depth = reader.Read<int32_t>();
    row.values = reader.ReadVector<float>();
  }
  LONGSPAN_RETURN_IF_ERROR(ReadStatus(reader, result.status));
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  if (result.rank < 0) return base::DataLoss("a step result is of rank {}", result.rank);
  for (const plan::RowResult& row : result.rows)
    if (row.token < -1) return base::DataLoss("a step result has the token {}", row.token);
  for (const plan::HiddenRow& row : result.hidden)
    if (row.depth < 0) return base::DataLoss("a step result has a row of depth {}", row.depth);
  return result;
}

}  // namespace longspan::runtime
