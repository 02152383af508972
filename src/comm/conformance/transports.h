// The transports that the suite runs over, and what its tests share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/channel.h"
#include "comm/link.h"
#include "comm/rank_group.h"

namespace longspan::comm {

struct Transport {
  std::string name;
  std::function<LinkPair()> make_links;
  std::function<ChannelPair(ChannelLimits)> make_channels;  // empty where it has links only
  size_t large = 64 << 20;                                  // bytes of the largest message to try
  // A group over links; empty: comm::CreateLinkGroup. All ranks make theirs at once.
  std::function<std::unique_ptr<RankGroup>(std::vector<Link*> peers, int rank, uint64_t tag)>
      make_group = nullptr;
};

// How gtest prints a parameter.
inline void PrintTo(const Transport& transport, std::ostream* out) { *out << transport.name; }

// In one process, AF_UNIX, shared memory, TCP, each of the first three under the decorator without
// faults and with a short delay, and copies between peers over some of them.
std::vector<Transport> LinkTransports();

// What groups are made of: all of these, or in a program of its own those of a device
// (tests/gpu/peer_groups.cc).
std::vector<Transport> GroupTransports();

// Those of them that have channels.
std::vector<Transport> ChannelTransports();

inline std::string TransportName(const testing::TestParamInfo<Transport>& info) {
  return info.param.name;
}

using Bytes = std::vector<std::byte>;

// Bytes that differ for every seed.
Bytes Pattern(uint64_t seed, size_t size);

// Empty where `bytes` are Pattern(seed, size); else what is wrong. (Comparing vectors in gtest
// would print megabytes.)
std::string WrongPattern(uint64_t seed, size_t size, const Bytes& bytes);

// A size between 0 and 64 KiB, most often small, that follows from the seed.
size_t RandomSize(uint64_t seed);

// What a thread must not need to wake up.
constexpr std::chrono::seconds kAtOnce{1};

// Seconds that a function takes.
double SecondsOf(const std::function<void()>& function);

}  // namespace longspan::comm
