// The header of a frame, for the files that encode and decode bodies. Internal to runtime/.
#pragma once

#include "base/bytes.h"
#include "runtime/wire.h"

namespace longspan::runtime {

inline constexpr uint32_t kFrameMagic = 0x4e50534c;  // "LSPN"
inline constexpr uint16_t kFrameVersion = 4;
inline constexpr size_t kFrameHeaderBytes = 7;

inline base::ByteWriter BeginFrame(FrameKind kind) {
  base::ByteWriter writer;
  writer.Write(kFrameMagic);
  writer.Write(kFrameVersion);
  writer.Write(kind);
  return writer;
}

// A reader of the body of a frame that must be of this kind.
inline base::Result<base::ByteReader> OpenFrame(std::span<const std::byte> frame,
                                                FrameKind expected) {
  LONGSPAN_ASSIGN_OR_RETURN(const FrameKind kind, KindOf(frame));
  if (kind != expected)
    return base::DataLoss("a frame of kind {} came where kind {} is due", static_cast<int>(kind),
                          static_cast<int>(expected));
  return base::ByteReader(frame.subspan(kFrameHeaderBytes));
}

inline void WriteStatus(base::ByteWriter& writer, const base::Status& status) {
  writer.Write(static_cast<uint8_t>(status.code()));
  writer.WriteString(status.message());
}

// Not ok for a code that no status has.
inline base::Status ReadStatus(base::ByteReader& reader, base::Status& status) {
  const auto code = reader.Read<uint8_t>();
  std::string message = reader.ReadString();
  if (code > static_cast<uint8_t>(base::StatusCode::kInternal))
    return base::DataLoss("a status has the unknown code {}", code);
  status = {static_cast<base::StatusCode>(code), std::move(message)};
  return base::OkStatus();
}

}  // namespace longspan::runtime
