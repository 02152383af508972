// Broken greetings between nodes, as bytes on a connection: refused with a reason, at once.
#include <algorithm>
#include <cstring>
#include <sys/socket.h>
#include <thread>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "comm/socket/tcp.h"
#include "comm/stream_socket.h"
#include "comm/wire.h"
#include "tests/fuzz/frame_mutator.h"

namespace longspan::testing {
namespace {

using comm::FileDescriptor;
using comm::Greeting;

const Greeting kMine = {
    "1.0", "node 0", {{"the model", "m 17"}, {"--page-size", "64"}, {"--pp-size", "2"}}};

// The bytes that an end sends.
Bytes GreetingBytes(const Greeting& greeting) {
  auto [end, peer] = std::move(comm::CreateSocketPair().value());
  std::thread sending([&, &socket = end] {
    (void)comm::ExchangeGreetings(socket, greeting, std::chrono::seconds(10));
  });
  Bytes bytes(4096);
  comm::FrameHeader header;
  EXPECT_EQ(::recv(peer.get(), bytes.data(), sizeof(header), MSG_WAITALL),
            static_cast<ssize_t>(sizeof(header)));
  std::memcpy(&header, bytes.data(), sizeof(header));
  EXPECT_EQ(::recv(peer.get(), bytes.data() + sizeof(header), header.size, MSG_WAITALL),
            static_cast<ssize_t>(header.size));
  bytes.resize(sizeof(header) + header.size);
  peer.Reset();
  sending.join();
  return bytes;
}

// What an end says to a peer that sends these bytes and hangs up.
base::Result<Greeting> Meet(const Bytes& bytes) {
  auto [end, peer] = std::move(comm::CreateSocketPair().value());
  EXPECT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  ::shutdown(peer.get(), SHUT_WR);
  return comm::ExchangeGreetings(end, kMine, std::chrono::seconds(10));
}

TEST(GreetingFuzzTest, OnlyAPeerThatAgreesIsTaken) {
  Greeting joining = kMine, other = kMine;
  joining.identity = "join 1 10.0.0.2:4000";
  other.agreement[1].second = "32";
  const std::vector<Bytes> corpus = {GreetingBytes(kMine), GreetingBytes(joining),
                                     GreetingBytes(other)};
  ASSERT_TRUE(Meet(corpus[1]).ok());
  FrameMutator mutator(8, corpus);
  int taken = 0;
  constexpr int kGreetings = 20000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kGreetings && !HasFailure(); ++i) {
    const Bytes bytes = mutator.Next();
    const auto theirs = Meet(bytes);
    if (!theirs.ok()) {
      EXPECT_FALSE(theirs.status().message().empty());
      EXPECT_NE(theirs.status().code(), base::StatusCode::kDeadlineExceeded);
      continue;
    }
    ++taken;
    EXPECT_EQ(theirs->build, kMine.build);
    for (const auto& pair : kMine.agreement)
      EXPECT_EQ(std::count(theirs->agreement.begin(), theirs->agreement.end(), pair), 1);
    EXPECT_EQ(theirs->agreement.size(), kMine.agreement.size());
    // Whole, besides what came after it, which is the next frame's business.
    const Bytes again = GreetingBytes(*theirs);
    ASSERT_GE(bytes.size(), again.size());
    EXPECT_TRUE(std::equal(again.begin() + sizeof(comm::FrameHeader), again.end(),
                           bytes.begin() + sizeof(comm::FrameHeader)));
  }
  // 10 seconds each, if they hung.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, kGreetings / 2);
}

}  // namespace
}  // namespace longspan::testing
