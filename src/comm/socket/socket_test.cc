// What only sockets have: processes that die, bytes that are broken, descriptors. The rest is in
// the suite of comm/conformance.
#include "comm/socket/socket.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/socket.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/conformance/peers.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

using base::StatusCode;
using Bytes = std::vector<std::byte>;

constexpr std::chrono::seconds kAtOnce{1};

TEST(SocketChannelTest, AKilledPeerIsNoticedAtOnce) {
  ChildPeer peer;
  auto channel = std::move(CreateSocketChannel(peer.TakeSocket()).value());
  ASSERT_TRUE(channel->Send(Bytes(64 << 20)).ok());
  EXPECT_EQ(channel->ReceiveFor(std::chrono::milliseconds(10)).status().code(),
            StatusCode::kDeadlineExceeded);
  peer.Kill();
  EXPECT_EQ(channel->ReceiveFor(kAtOnce).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(channel->Send(Bytes(10)).code(), StatusCode::kUnavailable);
}

TEST(SocketChannelTest, SendLearnsOfAKilledPeer) {
  ChildPeer peer;
  auto channel = std::move(CreateSocketChannel(peer.TakeSocket()).value());
  peer.Kill();
  EXPECT_EQ(channel->Send(Bytes(10)).code(), StatusCode::kUnavailable);
}

TEST(SocketLinkTest, AKilledPeerEndsEveryTransferAtOnce) {
  ChildPeer peer;
  auto link = std::move(CreateSocketLink(peer.TakeSocket()).value());
  Bytes data(1 << 20), buffer(1 << 20);
  const Transfer send = link->Send(1, data);
  const Transfer receive = link->Receive(1, buffer);
  EXPECT_EQ(send.WaitFor(std::chrono::milliseconds(10)).code(), StatusCode::kDeadlineExceeded);
  peer.Kill();
  EXPECT_EQ(send.WaitFor(kAtOnce).code(), StatusCode::kUnavailable);
  EXPECT_EQ(receive.WaitFor(kAtOnce).code(), StatusCode::kUnavailable);
}

TEST(SocketChannelTest, DestructionDoesNotWaitForAHangingPeer) {
  ChildPeer peer;
  auto channel = std::move(CreateSocketChannel(peer.TakeSocket()).value());
  ASSERT_TRUE(channel->Send(Bytes(64 << 20)).ok());
  const auto start = std::chrono::steady_clock::now();
  channel.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kAtOnce);
}

// What a channel says after the peer has sent a header.
base::Status ChannelAfter(const FrameHeader& header) {
  RawPeer peer;
  auto channel = std::move(CreateSocketChannel(peer.TakeEnd()).value());
  peer.Write(header);
  return channel->ReceiveFor(kAtOnce).status();
}

TEST(SocketChannelTest, BrokenHeadersAreDataLoss) {
  FrameHeader magic;
  magic.magic ^= 1;
  EXPECT_EQ(ChannelAfter(magic).code(), StatusCode::kDataLoss);
  FrameHeader version;
  version.version = 77;
  EXPECT_EQ(ChannelAfter(version).code(), StatusCode::kDataLoss);
  EXPECT_THAT(ChannelAfter(version).message(), testing::HasSubstr("version 77"));
  FrameHeader kind;
  kind.kind = FrameKind::kReady;
  EXPECT_EQ(ChannelAfter(kind).code(), StatusCode::kDataLoss);
  FrameHeader size;
  size.size = (uint64_t{1} << 30) + 1;
  EXPECT_EQ(ChannelAfter(size).code(), StatusCode::kDataLoss);
}

TEST(SocketChannelTest, ABrokenConnectionStaysBroken) {
  RawPeer peer;
  auto channel = std::move(CreateSocketChannel(peer.TakeEnd()).value());
  peer.Write(Bytes(100));
  EXPECT_EQ(channel->Receive().status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(channel->Receive().status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(channel->Send(Bytes(1)).code(), StatusCode::kDataLoss);
}

TEST(SocketChannelTest, AnEndInsideAMessageSaysSo) {
  for (const size_t bytes : {size_t{10}, sizeof(FrameHeader), sizeof(FrameHeader) + 50}) {
    RawPeer peer;
    auto channel = std::move(CreateSocketChannel(peer.TakeEnd()).value());
    FrameHeader header;
    header.size = 100;
    Bytes all(sizeof(header) + 100);
    std::memcpy(all.data(), &header, sizeof(header));
    peer.Write(std::span(all).first(bytes));
    peer.HangUp();
    const base::Status status = channel->ReceiveFor(kAtOnce).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), testing::HasSubstr("in the middle of a message"));
  }
}

// What the receive of message 5 (100 bytes) says after the peer has sent headers.
base::Status LinkAfter(const std::vector<FrameHeader>& headers) {
  RawPeer peer;
  Bytes buffer(100);
  auto link = std::move(CreateSocketLink(peer.TakeEnd()).value());
  const Transfer receive = link->Receive(5, buffer);
  for (const FrameHeader& header : headers) peer.Write(header);
  return receive.WaitFor(kAtOnce);
}

TEST(SocketLinkTest, BrokenHeadersAreDataLoss) {
  EXPECT_EQ(LinkAfter({Header(FrameKind::kFrame, 5, 100)}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(LinkAfter({Header(FrameKind{9}, 5, 100)}).code(), StatusCode::kDataLoss);
  // Messages and refusals for which nobody has posted a buffer, or one of another size.
  EXPECT_EQ(LinkAfter({Header(FrameKind::kMessage, 6, 100)}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(LinkAfter({Header(FrameKind::kRefused, 6, 100)}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(LinkAfter({Header(FrameKind::kMessage, 5, 101)}).code(), StatusCode::kDataLoss);
  const FrameHeader ready = Header(FrameKind::kReady, 1, 8);
  EXPECT_EQ(LinkAfter({ready, ready}).code(), StatusCode::kDataLoss);
}

// Nonsense from the peer ends everything with an error; nothing hangs or breaks.
TEST(SocketFuzzTest, NonsenseEndsTheConnection) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    RawPeer channel_peer, link_peer;
    Bytes buffer(64);
    auto channel = std::move(CreateSocketChannel(channel_peer.TakeEnd()).value());
    auto link = std::move(CreateSocketLink(link_peer.TakeEnd()).value());
    const Transfer receive = link->Receive(1, buffer);
    for (int frame = 0; frame < 4; ++frame) {
      FrameHeader header = Header(FrameKind(random() % 6), random() % 3, random() % 128);
      Bytes bytes(sizeof(header) + random() % 128);
      std::memcpy(bytes.data(), &header, sizeof(header));
      if (random() % 4 == 0) bytes[random() % bytes.size()] ^= std::byte{0x41};
      channel_peer.Write(bytes);
      link_peer.Write(bytes);
    }
    channel_peer.HangUp();
    link_peer.HangUp();
    base::Status status;
    while (status.ok()) status = channel->ReceiveFor(kAtOnce).status();
    EXPECT_NE(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(receive.WaitFor(kAtOnce).code(), StatusCode::kDeadlineExceeded);
    const Transfer late = link->Receive(2, buffer);
    EXPECT_FALSE(late.WaitFor(kAtOnce).ok());
  }
}

TEST(SocketAdoptionTest, RefusesWhatIsNotAConnectedStream) {
  EXPECT_EQ(CreateSocketChannel(FileDescriptor()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateSocketLink(FileDescriptor(::open("/dev/null", O_RDWR))).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateSocketLink(FileDescriptor(::socket(AF_UNIX, SOCK_DGRAM, 0))).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateSocketLink(FileDescriptor(::socket(AF_UNIX, SOCK_STREAM, 0))).status().code(),
            StatusCode::kUnavailable);
}

TEST(SocketAdoptionTest, MakesTheSocketBlockingAndClosedOnExec) {
  auto [first, second] = std::move(CreateSocketPair().value());
  EXPECT_EQ(::fcntl(first.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_EQ(::fcntl(first.get(), F_SETFD, 0), 0);
  ASSERT_EQ(::fcntl(first.get(), F_SETFL, O_NONBLOCK), 0);
  const int fd = first.get();
  auto channel = std::move(CreateSocketChannel(std::move(first)).value());
  EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(channel->ReceiveFor(std::chrono::milliseconds(5)).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST(SocketAdoptionTest, LeavesNoDescriptorOpen) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) {
    auto channels = CreateSocketChannelPair();
    auto links = CreateSocketLinkPair();
    ASSERT_TRUE(channels.ok() && links.ok());
    EXPECT_EQ(OpenDescriptors(), before + 4);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace longspan::comm
