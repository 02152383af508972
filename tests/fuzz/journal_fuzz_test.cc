// The bytes that a journal through shared memory tells its readers with, broken.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "comm/shared_memory/memory.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/stream_socket.h"
#include "comm/wire.h"
#include "tests/fuzz/frame_mutator.h"

namespace longspan::testing {
namespace {

using comm::FileDescriptor;
using comm::FrameHeader;
using comm::FrameKind;

Bytes BytesOf(FrameKind kind, uint64_t number, uint64_t size) {
  FrameHeader header;
  header.kind = kind;
  header.number = number;
  header.size = size;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return {bytes.begin(), bytes.end()};
}

// A memory of 1,000 bytes is passed and two entries of it are told of in order; the third word is
// broken.
TEST(JournalFuzzTest, WhatIsNoEntryEndsIt) {
  FileDescriptor memory(::memfd_create("test", MFD_CLOEXEC));
  const Bytes content(1000, std::byte{5});
  ASSERT_EQ(::pwrite(memory.get(), content.data(), content.size(), 0), 1000);
  FrameMutator mutator(
      9, {BytesOf(FrameKind::kEntry, 2, 100), BytesOf(FrameKind::kEntry, 0, 100),
          BytesOf(FrameKind::kMemory, 2, 1 << 20), BytesOf(FrameKind::kMessage, 2, 24)});
  int taken = 0;
  constexpr int kWords = 20000;
  for (int i = 0; i < kWords && !HasFailure(); ++i) {
    auto [end, peer] = std::move(comm::CreateSocketPair().value());
    const auto reader = comm::OpenSharedMemoryJournal(std::move(end)).value();
    ASSERT_TRUE(comm::PassMemory(peer.get(), memory, 1 << 20).ok());
    for (const uint64_t number : {0, 1}) {
      const Bytes word = BytesOf(FrameKind::kEntry, number, 100);
      (void)!::send(peer.get(), word.data(), word.size(), MSG_NOSIGNAL);
    }
    const Bytes word = mutator.Next();
    (void)!::send(peer.get(), word.data(), word.size(), MSG_NOSIGNAL);
    peer.Reset();
    for (int entry = 0; entry < 2; ++entry) EXPECT_EQ(reader->Receive().value().size(), 100u);
    auto third = reader->Receive();
    for (; third.ok(); third = reader->Receive()) {
      ++taken;
      EXPECT_LE(third->size(), 800u);
      EXPECT_EQ(*third, Bytes(third->size(), std::byte{5}));
    }
    EXPECT_TRUE(third.status().code() == base::StatusCode::kDataLoss ||
                third.status().code() == base::StatusCode::kUnavailable);
  }
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, kWords);
}

}  // namespace
}  // namespace longspan::testing
