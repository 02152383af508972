#include "runtime/node_wire.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "runtime/wire_frame.h"

namespace longspan::runtime {
namespace {

constexpr int kMostLanes = 1024;  // no machine has more

constexpr std::array<const char*, 3> kLineNames = {"control", "residual", "tokens"};

}  // namespace

std::vector<StageShare> SpreadStages(int stages, int nodes) {
  LONGSPAN_CHECK(nodes > 0 && stages >= nodes, "{} stages on {} nodes", stages, nodes);
  std::vector<StageShare> shares;
  int first = 0;
  for (int node = 0; node < nodes; ++node) {
    const int end = first + stages / nodes + (node < stages % nodes ? 1 : 0);
    shares.push_back({first, end});
    first = end;
  }
  return shares;
}

Frame EncodeLaunch(const NodeLaunch& launch) {
  base::ByteWriter writer = BeginFrame(FrameKind::kLaunch);
  writer.Write(launch.number);
  writer.Write(launch.stages);
  writer.Write(launch.lanes);
  writer.Write(static_cast<uint8_t>(launch.ring));
  writer.Write(static_cast<uint32_t>(launch.addresses.size()));
  for (const std::string& address : launch.addresses) writer.WriteString(address);
  return writer.Take();
}

base::Result<NodeLaunch> DecodeLaunch(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kLaunch));
  NodeLaunch launch;
  launch.number = reader.Read<uint64_t>();
  launch.stages = reader.Read<int32_t>();
  launch.lanes = reader.Read<int32_t>();
  const auto ring = reader.Read<uint8_t>();
  launch.ring = ring != 0;
  const uint32_t count = reader.ReadCount(sizeof(uint32_t));
  for (uint32_t i = 0; i < count && reader.status().ok(); ++i)
    launch.addresses.push_back(reader.ReadString());
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  if (ring > 1 || launch.addresses.empty() || launch.lanes < 1 || launch.lanes > kMostLanes ||
      launch.stages < static_cast<int64_t>(launch.addresses.size()))
    return base::DataLoss("an order to start {} stages on {} nodes makes no sense", launch.stages,
                          launch.addresses.size());
  return launch;
}

Frame EncodeRunOver() { return BeginFrame(FrameKind::kRunOver).Take(); }

std::string NodeLine::ToString() const {
  return fmt::format("launch {} {} {} {}", launch, kLineNames[static_cast<size_t>(kind)], stage,
                     lane);
}

base::Result<NodeLine> NodeLine::Parse(const std::string& text) {
  std::istringstream words(text);
  std::string first;
  std::string name;
  NodeLine line;
  words >> first >> line.launch >> name >> line.stage >> line.lane;
  const auto* const kind = std::find(kLineNames.begin(), kLineNames.end(), name);
  if (words && kind != kLineNames.end()) line.kind = static_cast<Kind>(kind - kLineNames.begin());
  if (!words || kind == kLineNames.end() || line.ToString() != text)
    return base::DataLoss("a connection introduces itself as '{}'", text);
  return line;
}

}  // namespace longspan::runtime
