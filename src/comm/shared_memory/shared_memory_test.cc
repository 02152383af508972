// What only shared memory has: two processes, one of which dies; memory and frames that are broken.
// The rest is in the suite of comm/conformance.
#include "comm/shared_memory/shared_memory.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/conformance/peers.h"
#include "comm/shared_memory/memory.h"
#include "comm/shared_memory/ring_writer.h"
#include "comm/socket/tcp.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

using base::StatusCode;
using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

constexpr std::chrono::seconds kAtOnce{1};

Bytes Message(uint64_t number, size_t size) {
  return Bytes(size, static_cast<std::byte>(number * 7 + 1));
}

// Sends back what comes, message by message; message i has sizes[i % sizes.size()] bytes.
std::function<void(FileDescriptor)> Echo(const std::vector<size_t>& sizes) {
  return [sizes](FileDescriptor socket) {
    auto link = std::move(CreateSharedMemoryLink(std::move(socket)).value());
    for (uint64_t i = 0;; ++i) {
      Bytes buffer(sizes[i % sizes.size()]);
      if (!link->Receive(i, buffer).Wait().ok() || !link->Send(i, buffer).Wait().ok()) ::_exit(0);
    }
  };
}

TEST(SharedMemoryProcessTest, TwoProcessesExchangeMessagesOfAllSizes) {
  const std::vector<size_t> sizes = {1, 16384, 16385, 100000, kSharedRingBytes, 0, 9 << 20};
  ChildPeer peer(Echo(sizes));
  auto link = std::move(CreateSharedMemoryLink(peer.TakeSocket()).value());
  for (uint64_t i = 0; i < 3 * sizes.size(); ++i) {
    const Bytes data = Message(i, sizes[i % sizes.size()]);
    Bytes buffer(data.size());
    const Transfer receive = link->Receive(i, buffer);
    ASSERT_TRUE(link->Send(i, data).Wait().ok());
    ASSERT_TRUE(receive.Wait().ok());
    ASSERT_TRUE(buffer == data) << "message " << i;
  }
}

// The peer is killed at random moments: everything ends at once, and what ended well is right.
TEST(SharedMemoryProcessTest, AKilledPeerIsNoticedInTheMiddleOfTraffic) {
  const std::vector<size_t> sizes = {3 << 20, 100, 700000};
  constexpr uint64_t kMessages = 15;
  std::mt19937_64 random(5);
  const size_t descriptors = OpenDescriptors();
  for (int round = 0; round < 30; ++round) {
    ChildPeer peer(Echo(sizes));
    auto link = std::move(CreateSharedMemoryLink(peer.TakeSocket()).value());
    std::vector<Bytes> data, buffers;
    std::vector<Transfer> sends, receives;
    for (uint64_t i = 0; i < kMessages; ++i) {
      data.push_back(Message(i, sizes[i % sizes.size()]));
      buffers.emplace_back(data.back().size());
    }
    for (uint64_t i = 0; i < kMessages; ++i) {
      receives.push_back(link->Receive(i, buffers[i]));
      sends.push_back(link->Send(i, data[i]));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    peer.Kill();
    for (uint64_t i = 0; i < kMessages; ++i) {
      const base::Status sent = sends[i].WaitFor(kAtOnce), received = receives[i].WaitFor(kAtOnce);
      EXPECT_TRUE(sent.ok() || sent.code() == StatusCode::kUnavailable) << sent.message();
      EXPECT_TRUE(received.ok() || received.code() == StatusCode::kUnavailable)
          << received.message();
      if (received.ok()) {
        EXPECT_TRUE(buffers[i] == data[i]) << "message " << i;
      }
    }
    EXPECT_EQ(link->Send(kMessages, data[0]).Wait().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(SharedMemoryProcessTest, ClosingDoesNotWaitForAPeerThatHangs) {
  ChildPeer peer;
  auto link = std::move(CreateSharedMemoryLink(peer.TakeSocket()).value());
  Bytes data(8 << 20), buffer(8 << 20);
  const Transfer send = link->Send(1, data), receive = link->Receive(1, buffer);
  EXPECT_EQ(send.WaitFor(milliseconds(10)).code(), StatusCode::kDeadlineExceeded);
  const auto start = std::chrono::steady_clock::now();
  link->Close();
  EXPECT_TRUE(send.done() && receive.done());
  EXPECT_EQ(receive.Wait().code(), StatusCode::kUnavailable);
  link.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kAtOnce);
}

// A peer that has asked for a message and then reads no more of it: the ring is full.
TEST(SharedMemoryLinkTest, ClosingEndsAMessageThatWaitsForRoom) {
  RawPeer peer;
  auto link = std::move(CreateSharedMemoryLink(peer.TakeEnd()).value());
  Bytes data(4 * kSharedRingBytes);
  const Transfer send = link->Send(1, data);
  const auto memory = CreateMemory(kSharedRingBytes);
  ASSERT_TRUE(PassMemory(peer.raw(), memory.value(), kSharedRingBytes).ok());
  peer.Write(Header(FrameKind::kReady, 1, data.size()));
  EXPECT_EQ(send.WaitFor(milliseconds(50)).code(), StatusCode::kDeadlineExceeded);
  link->Close();
  EXPECT_EQ(send.Wait().code(), StatusCode::kUnavailable);
}

// What the receives of messages 5 (1 MiB) and 6 (100 bytes) say after the peer has passed its
// memory and sent headers. One outcome stands for both: the link is over.
base::Status LinkAfter(const std::vector<FrameHeader>& headers) {
  RawPeer peer;
  Bytes large(1 << 20), small(100);
  auto link = std::move(CreateSharedMemoryLink(peer.TakeEnd()).value());
  const Transfer first = link->Receive(5, large), second = link->Receive(6, small);
  const auto memory = CreateMemory(kSharedRingBytes);
  EXPECT_TRUE(PassMemory(peer.raw(), memory.value(), kSharedRingBytes).ok());
  for (const FrameHeader& header : headers) peer.Write(header);
  const base::Status status = first.WaitFor(kAtOnce);
  EXPECT_EQ(second.WaitFor(kAtOnce).code(), status.code());
  return status;
}

TEST(SharedMemoryLinkTest, BrokenFramesAreDataLoss) {
  const auto piece = [](uint64_t number, uint64_t size) {
    return Header(FrameKind::kPiece, number, size);
  };
  const std::vector<std::vector<FrameHeader>> broken = {
      {piece(7, 100)},                               // nobody has posted a buffer
      {piece(5, 0)},                                 //
      {piece(6, 101)},                               // larger than the buffer
      {piece(5, 1 << 19), piece(5, (1 << 19) + 1)},  // more than is left of it
      {piece(5, 100), piece(6, 100)},                // two messages at once
      {piece(5, ~uint64_t{0})},                      //
      {Header(FrameKind::kMessage, 5, 100)},         // another size
      {piece(5, 100), Header(FrameKind::kMessage, 5, 1 << 20)},
      {piece(5, 100), Header(FrameKind::kRefused, 5, 1)},
      {Header(FrameKind::kFreed, 0, 1)},  // of memory that is not in use
      {Header(FrameKind::kFreed, 0, 0)},
      {Header(FrameKind::kFrame, 5, 100)},
      {Header(FrameKind::kMemory, 0, kSharedRingBytes)},
      {Header(FrameKind{9}, 5, 100)},
      {Header(FrameKind::kReady, 1, 8), Header(FrameKind::kReady, 1, 8)},
  };
  for (size_t i = 0; i < broken.size(); ++i) {
    const base::Status status = LinkAfter(broken[i]);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << "case " << i << ": " << status.message();
  }
}

TEST(SharedMemoryLinkTest, APieceBeyondTheEndOfTheMemoryIsDataLoss) {
  RawPeer peer;
  Bytes buffer(kSharedRingBytes + 1);
  auto link = std::move(CreateSharedMemoryLink(peer.TakeEnd()).value());
  const Transfer receive = link->Receive(5, buffer);
  const auto memory = CreateMemory(kSharedRingBytes);
  ASSERT_TRUE(PassMemory(peer.raw(), memory.value(), kSharedRingBytes).ok());
  peer.Write(Header(FrameKind::kPiece, 5, kSharedRingBytes - 100));
  peer.Write(Header(FrameKind::kPiece, 5, 101));
  EXPECT_EQ(receive.WaitFor(kAtOnce).code(), StatusCode::kDataLoss);
  EXPECT_THAT(receive.Wait().message(), testing::HasSubstr("outside the shared memory"));
}

// What a receive says when the peer begins like that.
base::Status LinkAfterHello(const std::function<void(RawPeer&)>& hello) {
  RawPeer peer;
  Bytes buffer(100);
  auto link = std::move(CreateSharedMemoryLink(peer.TakeEnd()).value());
  const Transfer receive = link->Receive(5, buffer);
  hello(peer);
  return receive.WaitFor(kAtOnce);
}

base::Status LinkAfterMemory(int fd, size_t size) {
  const FileDescriptor memory(fd);
  return LinkAfterHello(
      [&](RawPeer& peer) { EXPECT_TRUE(PassMemory(peer.raw(), memory, size).ok()); });
}

TEST(SharedMemoryLinkTest, MemoryThatCouldFaultIsRefused) {
  const int growing = ::memfd_create("test", MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(growing, kSharedRingBytes), 0);
  EXPECT_EQ(LinkAfterMemory(growing, kSharedRingBytes).code(), StatusCode::kDataLoss);
  const int too_small = CreateMemory(4096).value().Release();
  EXPECT_EQ(LinkAfterMemory(too_small, kSharedRingBytes).code(), StatusCode::kDataLoss);
  const int small = CreateMemory(4096).value().Release();
  EXPECT_EQ(LinkAfterMemory(small, 4096).code(), StatusCode::kDataLoss);
  EXPECT_EQ(LinkAfterMemory(::open("/dev/zero", O_RDWR), kSharedRingBytes).code(),
            StatusCode::kDataLoss);
}

TEST(SharedMemoryLinkTest, APeerThatPassesNoMemoryIsRefused) {
  // As a link over a plain socket begins.
  const auto status = LinkAfterHello(
      [](RawPeer& peer) { peer.Write(Header(FrameKind::kReady, 0, kSharedRingBytes)); });
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), testing::HasSubstr("passes no memory"));
  EXPECT_EQ(LinkAfterHello([](RawPeer& peer) {
              peer.Write(Header(FrameKind::kMemory, 0, kSharedRingBytes));
            }).code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(LinkAfterHello([](RawPeer& peer) { peer.Write(Bytes(24)); }).code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(LinkAfterHello([](RawPeer& peer) { peer.HangUp(); }).code(), StatusCode::kUnavailable);
}

TEST(SharedMemoryFuzzTest, NonsenseEndsTheConnection) {
  std::mt19937_64 random(13);
  const auto memory = CreateMemory(kSharedRingBytes);
  for (int round = 0; round < 200; ++round) {
    RawPeer peer;
    auto link = std::move(CreateSharedMemoryLink(peer.TakeEnd()).value());
    Bytes small(64), large(1 << 20), data(1 << 20);
    const std::vector<Transfer> transfers = {link->Receive(0, small), link->Receive(1, large),
                                             link->Send(0, small), link->Send(1, data)};
    ASSERT_TRUE(PassMemory(peer.raw(), memory.value(), kSharedRingBytes).ok());
    constexpr uint64_t kNumbers[] = {0, 64, 1 << 19, 1 << 20, 3 << 20};
    for (int frame = 0; frame < 8; ++frame) {
      FrameHeader header = Header(FrameKind(random() % 10), random() % 3, kNumbers[random() % 5]);
      auto bytes = std::as_writable_bytes(std::span(&header, 1));
      if (random() % 8 == 0) bytes[random() % bytes.size()] ^= std::byte{0x41};
      peer.Write(header);
    }
    peer.HangUp();
    for (const Transfer& transfer : transfers)
      EXPECT_NE(transfer.WaitFor(kAtOnce).code(), StatusCode::kDeadlineExceeded);
    EXPECT_FALSE(link->Receive(9, small).WaitFor(kAtOnce).ok());
  }
}

TEST(SharedMemoryAdoptionTest, RefusesWhatIsNotASocketOfThisHost) {
  EXPECT_EQ(CreateSharedMemoryLink(FileDescriptor()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      CreateSharedMemoryLink(FileDescriptor(::socket(AF_UNIX, SOCK_STREAM, 0))).status().code(),
      StatusCode::kUnavailable);
  auto listener = std::move(TcpListener::Listen({"127.0.0.1", 0}).value());
  auto tcp = ConnectTcp(listener.address(), kAtOnce, kAtOnce);
  ASSERT_TRUE(tcp.ok());
  EXPECT_EQ(CreateSharedMemoryLink(std::move(*tcp)).status().code(), StatusCode::kInvalidArgument);
}

TEST(SharedMemoryAdoptionTest, APeerThatHasGoneIsUnavailable) {
  RawPeer peer;
  peer.HangUp();
  EXPECT_EQ(CreateSharedMemoryLink(peer.TakeEnd()).status().code(), StatusCode::kUnavailable);
}

TEST(SharedMemoryAdoptionTest, LeavesNoDescriptorOpen) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) {
    auto links = CreateSharedMemoryLinkPair();
    ASSERT_TRUE(links.ok());
    Bytes data(100000), buffer(100000);
    const Transfer receive = links->second->Receive(1, buffer);
    ASSERT_TRUE(links->first->Send(1, data).Wait().ok());
    ASSERT_TRUE(receive.Wait().ok());
  }
  // Memory that was passed to an end which is gone.
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(CreateSharedMemoryLinkPair().ok());
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace longspan::comm
