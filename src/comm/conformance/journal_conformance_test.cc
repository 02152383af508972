// One suite over every transport of journals.
#include <algorithm>
#include <array>
#include <atomic>
#include <fcntl.h>
#include <functional>
#include <ostream>
#include <sys/mman.h>
#include <thread>

#include "comm/conformance/peers.h"
#include "comm/conformance/transports.h"
#include "comm/in_process/in_process.h"
#include "comm/shared_memory/memory.h"
#include "comm/shared_memory/shared_memory.h"

namespace longspan::comm {
namespace {

struct JournalTransport {
  std::string name;
  std::function<JournalEnds(int readers)> make;
};
void PrintTo(const JournalTransport& transport, std::ostream* out) { *out << transport.name; }

class JournalTest : public testing::TestWithParam<JournalTransport> {
 protected:
  static JournalEnds Make(int readers) { return GetParam().make(readers); }
};
INSTANTIATE_TEST_SUITE_P(
    All, JournalTest,
    testing::Values(JournalTransport{"InProcess", CreateInProcessJournal},
                    JournalTransport{"SharedMemory",
                                     [](int readers) {
                                       return CreateSharedMemoryJournalEnds(readers).value();
                                     }}),
    [](const auto& tested) { return tested.param.name; });

TEST_P(JournalTest, EveryReaderGetsEveryEntryAtItsOwnPace) {
  auto [writer, readers] = Make(3);
  constexpr uint64_t kEntries = 100;
  std::vector<Bytes> entries;
  for (uint64_t i = 0; i < kEntries; ++i) entries.push_back(Pattern(i, RandomSize(i)));
  // The first follows at once, the second in bursts, the third when all is written.
  size_t of_second = 0;
  for (uint64_t i = 0; i < kEntries; ++i) {
    ASSERT_TRUE(writer->Append(entries[i]).ok());
    ASSERT_EQ(readers[0]->Receive().value(), entries[i]);
    for (; i % 30 == 29 && of_second <= i; ++of_second)
      ASSERT_EQ(readers[1]->Receive().value(), entries[of_second]);
  }
  for (const Bytes& entry : entries) ASSERT_EQ(readers[2]->Receive().value(), entry);
}

TEST_P(JournalTest, EmptyAndLargeEntriesComeWhole) {
  auto [writer, readers] = Make(2);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, size_t{0}, (size_t{5} << 20) + 3,
                            size_t{700} << 10, size_t{700} << 10, size_t{10}}) {
    const Bytes entry = Pattern(size, size);
    ASSERT_TRUE(writer->Append(entry).ok());
    for (const auto& reader : readers)
      EXPECT_EQ(WrongPattern(size, size, reader->Receive().value()), "");
  }
}

TEST_P(JournalTest, ManyEntriesComeToReadersThatRun) {
  const JournalEnds ends = Make(3);
  constexpr uint64_t kEntries = 3000;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  std::atomic<uint64_t> read[3] = {};
  for (size_t i = 0; i < ends.readers.size(); ++i)
    threads.emplace_back([&, i] {
      for (uint64_t entry = 0; entry < kEntries; ++entry, ++read[i]) {
        const auto bytes = ends.readers[i]->Receive();
        if (!bytes.ok() || !WrongPattern(entry, RandomSize(entry), *bytes).empty()) ++wrong;
      }
    });
  for (uint64_t entry = 0; entry < kEntries; ++entry) {
    // As the leader does: so many plans in flight and no more.
    while (entry > 20 + std::min({read[0].load(), read[1].load(), read[2].load()}))
      std::this_thread::yield();
    ASSERT_TRUE(ends.writer->Append(Pattern(entry, RandomSize(entry))).ok());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(JournalTest, TheEndComesAfterWhatWasWritten) {
  for (const bool destroy : {false, true}) {
    auto [writer, readers] = Make(2);
    ASSERT_TRUE(writer->Append(Pattern(1, 100)).ok());
    writer->Close();
    writer->Close();
    EXPECT_EQ(writer->Append(Pattern(2, 10)).message(), "this end of the connection was closed");
    if (destroy) writer.reset();
    for (const auto& reader : readers) {
      EXPECT_EQ(reader->Receive().value(), Pattern(1, 100));
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(reader->Receive().status().code(), base::StatusCode::kUnavailable);
        EXPECT_EQ(reader->Receive().status().message(), "the peer closed the connection");
      }
    }
  }
}

TEST_P(JournalTest, WhoWaitsIsWokenByEitherEnd) {
  for (const bool here : {true, false}) {
    auto [writer, readers] = Make(2);
    base::Status status;
    std::thread waiting([&, reader = readers[0].get()] { status = reader->Receive().status(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // mostly it waits by now
    here ? readers[0]->Close() : writer->Close();
    EXPECT_LT(SecondsOf([&] { waiting.join(); }), 1);
    EXPECT_EQ(status.code(), base::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(),
              here ? "this end of the connection was closed" : "the peer closed the connection");
  }
}

TEST_P(JournalTest, AClosedReaderReadsNothingMore) {
  auto [writer, readers] = Make(1);
  ASSERT_TRUE(writer->Append(Pattern(1, 100)).ok());
  readers[0]->Close();
  readers[0]->Close();
  EXPECT_EQ(readers[0]->Receive().status().message(), "this end of the connection was closed");
}

TEST_P(JournalTest, AReaderThatIsGoneKeepsNothingFromTheOthers) {
  auto [writer, readers] = Make(3);
  ASSERT_TRUE(writer->Append(Pattern(0, 10)).ok());
  readers[1]->Close();
  readers[1].reset();
  for (uint64_t i = 1; i < 5; ++i) {
    const base::Status status = writer->Append(Pattern(i, 2000));
    EXPECT_EQ(status.code(), base::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "the peer closed the connection");
  }
  for (const size_t other : {0, 2}) {
    EXPECT_EQ(readers[other]->Receive().value(), Pattern(0, 10));
    for (uint64_t i = 1; i < 5; ++i) EXPECT_EQ(readers[other]->Receive().value(), Pattern(i, 2000));
  }
}

TEST_P(JournalTest, AReaderThatStandsStillHoldsUpNobody) {
  const JournalEnds ends = Make(2);
  base::Status status;
  uint64_t written = 0;
  EXPECT_LT(SecondsOf([&] {
              for (; status.ok() && written < 100000; ++written) {
                status = ends.writer->Append(Pattern(written, 500));
                ASSERT_EQ(ends.readers[1]->Receive().value(), Pattern(written, 500));
              }
            }),
            10);
  EXPECT_EQ(status.code(), base::StatusCode::kResourceExhausted);
  // A pipeline has far fewer plans in flight.
  EXPECT_GT(written, 100u);
  // What it was told of is there.
  for (uint64_t i = 0; i + 1 < written; ++i)
    ASSERT_EQ(ends.readers[0]->Receive().value(), Pattern(i, 500));
}

// What only processes can do.
TEST(SharedMemoryJournalTest, AProcessReadsAndOneThatIsKilledIsNoticed) {
  const size_t descriptors = OpenDescriptors();
  {
    ChildPeer echo([](FileDescriptor socket) {
      // Sends the journal back as one of its own, over the same socket's other direction.
      auto copy = FileDescriptor(::dup(socket.get()));
      auto reader = OpenSharedMemoryJournal(std::move(socket)).value();
      std::vector<FileDescriptor> sockets;
      sockets.push_back(std::move(copy));
      auto writer = CreateSharedMemoryJournal(std::move(sockets)).value();
      for (auto entry = reader->Receive(); entry.ok(); entry = reader->Receive())
        (void)writer->Append(*entry);
    });
    FileDescriptor socket = echo.TakeSocket();
    auto back = OpenSharedMemoryJournal(FileDescriptor(::dup(socket.get()))).value();
    std::vector<FileDescriptor> sockets;
    sockets.push_back(std::move(socket));
    auto writer = CreateSharedMemoryJournal(std::move(sockets)).value();
    for (uint64_t i = 0; i < 300; ++i) {
      const Bytes entry = Pattern(i, 10 * RandomSize(i));
      ASSERT_TRUE(writer->Append(entry).ok());
      ASSERT_EQ(back->Receive().value(), entry);
    }
    echo.Kill();
    EXPECT_EQ(back->Receive().status().code(), base::StatusCode::kUnavailable);
    EXPECT_EQ(writer->Append(Pattern(0, 1)).code(), base::StatusCode::kUnavailable);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

class BrokenJournalTest : public testing::Test {
 protected:
  RawPeer peer_;
  std::unique_ptr<JournalReader> reader_ = OpenSharedMemoryJournal(peer_.TakeEnd()).value();

  void ExpectRefused(const char* what) {
    const base::Status status = reader_->Receive().status();
    EXPECT_EQ(status.code(), base::StatusCode::kDataLoss) << what;
    // For good, whatever comes.
    EXPECT_EQ(reader_->Receive().status().message(), status.message()) << what;
  }
};

TEST_F(BrokenJournalTest, AnEntryWithoutMemoryIsRefused) {
  peer_.Write(Header(FrameKind::kEntry, 0, 10));
  ExpectRefused("no memory");
}

TEST_F(BrokenJournalTest, MemoryThatIsNotPassedIsRefused) {
  peer_.Write(Header(FrameKind::kMemory, 0, 1 << 20));
  ExpectRefused("no descriptor");
}

TEST_F(BrokenJournalTest, EntriesOutsideTheirMemoryAreRefused) {
  const Bytes bytes = Pattern(1, 100);
  FileDescriptor memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(memory.get(), bytes.data(), bytes.size(), 0), 100);
  // What it says of its size is not believed.
  ASSERT_TRUE(PassMemory(peer_.raw(), memory, size_t{1} << 60).ok());
  peer_.Write(Header(FrameKind::kEntry, 0, 60));
  EXPECT_EQ(reader_->Receive().value().size(), 60u);
  peer_.Write(Header(FrameKind::kEntry, 1, 41));
  ExpectRefused("too long");
}

TEST_F(BrokenJournalTest, SkippedAndRepeatedNumbersAreRefused) {
  for (const uint64_t number : {0, 2}) {
    RawPeer peer;
    reader_ = OpenSharedMemoryJournal(peer.TakeEnd()).value();
    FileDescriptor memory(::memfd_create("test", MFD_CLOEXEC));
    ASSERT_TRUE(PassMemory(peer.raw(), memory, 1000).ok());
    peer.Write(Header(FrameKind::kEntry, 0, 0));
    EXPECT_TRUE(reader_->Receive().ok());
    peer.Write(Header(FrameKind::kEntry, number, 0));
    ExpectRefused("number");
  }
}

TEST_F(BrokenJournalTest, WhatIsNoMemoryIsRefused) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const FileDescriptor read_end(pipe[0]), write_end(pipe[1]);
  ASSERT_TRUE(PassMemory(peer_.raw(), read_end, 1000).ok());
  peer_.Write(Header(FrameKind::kEntry, 0, 1));
  ExpectRefused("a pipe");
}

TEST_F(BrokenJournalTest, AnotherKindIsRefused) {
  peer_.Write(Header(FrameKind::kFrame, 0, 0));
  ExpectRefused("a frame");
}

TEST_F(BrokenJournalTest, AnotherVersionIsRefused) {
  FrameHeader header = Header(FrameKind::kEntry, 0, 0);
  header.version = 77;
  peer_.Write(header);
  ExpectRefused("version");
}

TEST_F(BrokenJournalTest, AHeaderThatIsCutOffIsTheEnd) {
  const FrameHeader header = Header(FrameKind::kEntry, 0, 0);
  peer_.Write(std::as_bytes(std::span(&header, 1)).first(7));
  peer_.HangUp();
  EXPECT_EQ(reader_->Receive().status().code(), base::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace longspan::comm
