#include "comm/conformance/host_peer_memory.h"

#include <cstring>

namespace longspan::comm {
namespace {

class HostMemory : public PeerMemory {
 public:
  base::Result<PeerPlace> Export(std::span<std::byte> buffer) override {
    PeerPlace place{};
    std::byte* const data = buffer.data();
    std::memcpy(place.data(), &data, sizeof(data));
    return place;
  }

  Transfer Copy(std::span<const std::byte> data, const PeerPlace& place) override {
    std::byte* target = nullptr;
    std::memcpy(static_cast<void*>(&target), place.data(), sizeof(target));
    if (!data.empty()) std::memcpy(target, data.data(), data.size());
    return {};
  }
};

}  // namespace

PeerMemory& HostPeerMemory() {
  static HostMemory memory;
  return memory;
}

}  // namespace longspan::comm
