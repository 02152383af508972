// Bring-up frames, tokens and failures; plans and results have files of their own.
#include "runtime/wire.h"

#include "runtime/wire_frame.h"

namespace longspan::runtime {
namespace {

bool ValidDType(tensor::DType type) { return tensor::SizeOf(type) != 0; }

bool ValidPlace(const RankConfig& config) {
  constexpr int kMost = 1 << 16;
  int64_t ranks = 1;
  for (const int size : {config.mesh.pp, config.mesh.dp, config.mesh.cp, config.mesh.tp}) {
    if (size < 1 || size > kMost) return false;
    ranks *= size;
    if (ranks > kMost) return false;
  }
  return config.mesh.ep >= 1 && spec::DividesStage(config.mesh, config.mesh.ep) &&
         config.rank >= 0 && config.rank < ranks;
}

}  // namespace

base::Result<FrameKind> KindOf(std::span<const std::byte> frame) {
  base::ByteReader reader(frame);
  const auto magic = reader.Read<uint32_t>();
  const auto version = reader.Read<uint16_t>();
  const auto kind = reader.Read<uint8_t>();
  LONGSPAN_RETURN_IF_ERROR(reader.status());
  if (magic != kFrameMagic) return base::DataLoss("a frame does not begin as one of this program");
  if (version != kFrameVersion)
    return base::DataLoss(
        "a frame has version {}, this program speaks {}: run the same build everywhere", version,
        kFrameVersion);
  if (kind < static_cast<uint8_t>(FrameKind::kConfigure) ||
      kind > static_cast<uint8_t>(FrameKind::kRunOver))
    return base::DataLoss("a frame has the unknown kind {}", kind);
  return static_cast<FrameKind>(kind);
}

Frame EncodeConfigure(const RankConfig& config) {
  base::ByteWriter writer = BeginFrame(FrameKind::kConfigure);
  writer.WriteString(config.model_dir);
  writer.Write(config.load_format);
  writer.Write(config.dummy_seed);
  writer.WriteString(config.backend);
  writer.Write(config.threads);
  writer.WriteVector<int32_t>(config.cores);
  writer.Write(config.device);
  writer.Write<uint8_t>(config.previous_by_peer_copy ? 1 : 0);
  writer.Write<uint8_t>(config.next_by_peer_copy ? 1 : 0);
  writer.Write(config.compute);
  writer.Write(config.kv_cache);
  writer.Write<uint8_t>(config.deterministic ? 1 : 0);
  writer.Write<uint8_t>(config.synthetic_kv ? 1 : 0);
  writer.Write(config.epoch.value);
  for (const int size :
       {config.mesh.pp, config.mesh.dp, config.mesh.cp, config.mesh.tp, config.mesh.ep})
    writer.Write<int32_t>(size);
  writer.Write(config.rank);
  writer.Write(config.token_split);
  writer.Write(config.kv_placement);
  writer.WriteVector<plan::LayerRange>(config.ranges);
  writer.Write(config.page_size);
  writer.Write(config.max_rows);
  writer.Write(config.max_slices);
  writer.Write(config.max_context);
  writer.Write(config.beat_every_ms);
  writer.Write(config.peer_timeout_ms);
  writer.Write(config.watchdog_timeout_ms);
  return writer.Take();
}

base::Result<RankConfig> DecodeConfigure(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kConfigure));
  RankConfig config;
  config.model_dir = reader.ReadString();
  config.load_format = reader.Read<LoadFormat>();
  config.dummy_seed = reader.Read<uint64_t>();
  config.backend = reader.ReadString();
  config.threads = reader.Read<int32_t>();
  config.cores = reader.ReadVector<int32_t>();
  config.device = reader.Read<int32_t>();
  config.previous_by_peer_copy = reader.Read<uint8_t>() != 0;
  config.next_by_peer_copy = reader.Read<uint8_t>() != 0;
  config.compute = reader.Read<tensor::DType>();
  config.kv_cache = reader.Read<tensor::DType>();
  config.deterministic = reader.Read<uint8_t>() != 0;
  config.synthetic_kv = reader.Read<uint8_t>() != 0;
  config.epoch.value = reader.Read<uint32_t>();
  for (int* size :
       {&config.mesh.pp, &config.mesh.dp, &config.mesh.cp, &config.mesh.tp, &config.mesh.ep})
    *size = reader.Read<int32_t>();
  config.rank = reader.Read<int32_t>();
  config.token_split = reader.Read<plan::TokenSplit>();
  config.kv_placement = reader.Read<plan::KvPlacement>();
  config.ranges = reader.ReadVector<plan::LayerRange>();
  config.page_size = reader.Read<int32_t>();
  config.max_rows = reader.Read<int64_t>();
  config.max_slices = reader.Read<int64_t>();
  config.max_context = reader.Read<int64_t>();
  config.beat_every_ms = reader.Read<int64_t>();
  config.peer_timeout_ms = reader.Read<int64_t>();
  config.watchdog_timeout_ms = reader.Read<int64_t>();
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  const bool sane = config.load_format <= LoadFormat::kDummy && ValidDType(config.compute) &&
                    ValidDType(config.kv_cache) && config.threads > 0 && ValidPlace(config) &&
                    config.token_split <= plan::TokenSplit::kZigzag &&
                    config.kv_placement <= plan::KvPlacement::kSharded && !config.ranges.empty() &&
                    config.page_size > 0 && config.max_rows > 0 && config.max_slices > 0 &&
                    config.max_context > 0 && config.beat_every_ms > 0 &&
                    config.peer_timeout_ms > 0 && config.watchdog_timeout_ms > 0;
  if (!sane) return base::DataLoss("the configuration of a rank makes no sense");
  return config;
}

Frame EncodeLoading(double share) {
  base::ByteWriter writer = BeginFrame(FrameKind::kLoading);
  writer.Write(share);
  return writer.Take();
}

base::Result<double> DecodeLoading(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kLoading));
  const auto share = reader.Read<double>();
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  return share;
}

Frame EncodeReady(const RankReady& ready) {
  base::ByteWriter writer = BeginFrame(FrameKind::kReady);
  writer.Write(ready.weight_bytes);
  writer.Write(ready.workspace_bytes);
  writer.Write(ready.kv_bytes_per_page);
  writer.Write(ready.available_bytes);
  return writer.Take();
}

base::Result<RankReady> DecodeReady(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kReady));
  RankReady ready;
  ready.weight_bytes = reader.Read<int64_t>();
  ready.workspace_bytes = reader.Read<int64_t>();
  ready.kv_bytes_per_page = reader.Read<int64_t>();
  ready.available_bytes = reader.Read<int64_t>();
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  return ready;
}

Frame EncodeAllocate(int64_t pages) {
  base::ByteWriter writer = BeginFrame(FrameKind::kAllocate);
  writer.Write(pages);
  return writer.Take();
}

base::Result<int64_t> DecodeAllocate(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kAllocate));
  const auto pages = reader.Read<int64_t>();
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  if (pages <= 0) return base::DataLoss("a rank is asked for {} pages", pages);
  return pages;
}

Frame EncodeAllocated() { return BeginFrame(FrameKind::kAllocated).Take(); }

Frame EncodeTokens(const SampledTokens& tokens) {
  base::ByteWriter writer = BeginFrame(FrameKind::kTokens);
  writer.Write(tokens.plan.value);
  writer.WriteVector<int32_t>(tokens.tokens);
  return writer.Take();
}

base::Result<SampledTokens> DecodeTokens(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kTokens));
  SampledTokens tokens;
  tokens.plan.value = reader.Read<uint64_t>();
  tokens.tokens = reader.ReadVector<int32_t>();
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  return tokens;
}

Frame EncodeFailure(const base::Status& status) {
  base::ByteWriter writer = BeginFrame(FrameKind::kFailure);
  WriteStatus(writer, status);
  return writer.Take();
}

base::Status DecodeFailure(std::span<const std::byte> frame) {
  auto reader = OpenFrame(frame, FrameKind::kFailure);
  if (!reader.ok()) return reader.status();
  base::Status failure;
  LONGSPAN_RETURN_IF_ERROR(ReadStatus(*reader, failure));
  LONGSPAN_RETURN_IF_ERROR(reader->Finish());
  if (failure.ok()) return base::DataLoss("a rank reports a failure without an error");
  return failure;
}

}  // namespace longspan::runtime
