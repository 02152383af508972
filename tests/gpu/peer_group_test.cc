// Groups on GPUs whose ranks are processes: the second GPU if there is one, else both use the
// first, which then takes turns between them. The suite of all groups runs beside it, with ranks
// that are threads (peer_groups.cc).
#include "backend/cuda/peer_group.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_queue.h"
#include "backend/cuda/peer_memory.h"
#include "backend/cuda/step_graphs.h"
#include "comm/shared_memory/shared_memory.h"

namespace longspan::backend::cuda {
namespace {

constexpr const char* kSocketVariable = "LONGSPAN_PEER_GROUP_TEST_SOCKET";
constexpr const char* kActVariable = "LONGSPAN_PEER_GROUP_TEST_ACT";

int DeviceOf(int rank) { return rank == 0 ? 0 : VisibleDevices() - 1; }

// One of two ranks.
class Rank {
 public:
  Rank(int rank, int socket)
      : rank_(rank),
        queue_(CudaQueue::Create(DeviceOf(rank)).value()),
        memory_(AllocateDevice(kMostFloats * 4).value()),
        link_(comm::CreateSharedMemoryLink(comm::FileDescriptor(socket)).value()),
        group_(CreatePeerGroup(*queue_,
                               rank == 0 ? std::vector<comm::Link*>{nullptr, link_.get()}
                                         : std::vector<comm::Link*>{link_.get(), nullptr},
                               rank, 1)
                   .value()) {}

  static constexpr int64_t kMostFloats = 6'000'003;  // more than fit through a window at once

  comm::RankGroup& group() { return *group_; }
  CudaQueue& queue() { return *queue_; }

  static float ValueOf(int rank, int64_t i) {
    return std::sin(static_cast<float>(i % 1013 + 2000 * rank)) * static_cast<float>(1 << i % 19);
  }
  tensor::View View(int64_t count) const { return {memory_.data(), tensor::DType::kF32, {count}}; }
  void Fill(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) values[i] = ValueOf(rank_, i);
    ASSERT_TRUE(queue_->Upload(std::as_bytes(std::span(values)), memory_.data()).ok());
  }
  void ExpectSums(int64_t count, float times) {
    std::vector<float> values(static_cast<size_t>(count));
    const base::Status status =
        queue_->Download(memory_.data(), std::as_writable_bytes(std::span(values)));
    ASSERT_TRUE(status.ok()) << status.message();
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(values[i], (ValueOf(0, i) + ValueOf(1, i)) * times) << i << " of " << count;
  }

 private:
  int rank_;
  std::unique_ptr<CudaQueue> queue_;
  tensor::Buffer memory_;
  std::unique_ptr<comm::Link> link_;
  std::unique_ptr<comm::RankGroup> group_;
};

// What both do.
void AddUp(Rank& rank) {
  for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{262144}, Rank::kMostFloats}) {
    rank.Fill(count);
    ASSERT_TRUE(rank.group().AllReduce(rank.View(count)).Wait().ok());
    rank.ExpectSums(count, 1);
  }
}

// Whole numbers, whose sums bf16 holds.
void AddUpBf16(Rank& rank) {
  std::vector<tensor::Bf16> values(static_cast<size_t>(Rank::kMostFloats));
  const auto value_of = [](int of, size_t i) {
    return static_cast<float>(i % 97 + 30 * static_cast<size_t>(of));
  };
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = tensor::ToBf16(value_of(rank.group().rank(), i));
  const auto bytes = std::as_writable_bytes(std::span(values));
  const tensor::View view(rank.View(1).raw(), tensor::DType::kBf16, {std::ssize(values)});
  ASSERT_TRUE(rank.queue().Upload(bytes, view.raw()).ok());
  ASSERT_TRUE(rank.group().AllReduce(view).Wait().ok());
  ASSERT_TRUE(rank.queue().Download(view.raw(), bytes).ok());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(tensor::ToFloat(values[i]), value_of(0, i) + value_of(1, i)) << i;
}

uint8_t ByteOf(int rank, size_t i) {
  return static_cast<uint8_t>(i * 7 + i / 251 + 31 * static_cast<size_t>(rank));
}

// Blocks and messages that take several turns through the windows, at odd places.
void PassOn(Rank& rank) {
  const int own = rank.group().rank();
  const std::vector<size_t> sizes = {11'000'003, 5'000'001};
  const size_t begin = own == 0 ? 0 : sizes[0];
  std::vector<uint8_t> bytes(sizes[0] + sizes[1]);
  for (size_t i = 0; i < sizes[own]; ++i) bytes[begin + i] = ByteOf(own, i);
  auto* const memory = static_cast<std::byte*>(rank.View(1).raw());
  const comm::RankGroup::Bytes all = {memory, bytes.size()};
  const auto read = [&] {
    ASSERT_TRUE(rank.queue().Download(memory, std::as_writable_bytes(std::span(bytes))).ok());
  };
  ASSERT_TRUE(rank.queue().Upload(std::as_bytes(std::span(bytes)), memory).ok());
  ASSERT_TRUE(rank.group().AllGather(all, sizes).Wait().ok());
  read();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int from = i < sizes[0] ? 0 : 1;
    ASSERT_EQ(bytes[i], ByteOf(from, i - (from == 0 ? 0 : sizes[0]))) << i;
  }
  // Both have the first block now; the one sends much of it, the other little.
  const auto sent_by = [&](int from) { return from == 0 ? sizes[1] : size_t{77}; };
  std::vector<comm::RankGroup::ConstBytes> outgoing(2);
  std::vector<comm::RankGroup::Bytes> incoming(2);
  outgoing[1 - own] = all.subspan(1, sent_by(own));
  incoming[1 - own] = all.subspan(sizes[0], sent_by(1 - own));
  ASSERT_TRUE(rank.group().AllToAll(outgoing, incoming).Wait().ok());
  read();
  for (size_t i = 0; i < incoming[1 - own].size(); ++i)
    ASSERT_EQ(bytes[sizes[0] + i], ByteOf(0, i + 1)) << i;
}

// A sum that is recorded once and repeated: each time the sums are added up.
void Repeat(Rank& rank) {
  ASSERT_TRUE(rank.group().repeatable());
  StepGraphs graphs(rank.queue());
  constexpr int64_t kCount = 5000;
  constexpr int kTimes = 6;
  rank.Fill(kCount);
  for (int i = 0; i < kTimes; ++i)
    graphs.Run(1, [&] { (void)rank.group().AllReduce(rank.View(kCount)).Wait(); });
  // What two equal numbers make of each other: exact.
  rank.ExpectSums(kCount, static_cast<float>(1 << (kTimes - 1)));
}

// Seconds of a sum of kMostFloats.
double Measure(Rank& rank) {
  constexpr int kTimes = 20;
  std::chrono::steady_clock::time_point begin;
  for (int i = 0; i <= kTimes; ++i) {
    (void)rank.group().AllReduce(rank.View(Rank::kMostFloats)).Wait();
    if (i > 0) continue;
    EXPECT_TRUE(rank.queue().Synchronize().ok());
    begin = std::chrono::steady_clock::now();
  }
  EXPECT_TRUE(rank.queue().Synchronize().ok());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTimes;
}

enum Act { kWork, kMeasure, kDie, kPostAnotherSize };

void RunPeer(int socket, int act) {
  Rank rank(1, socket);
  AddUp(rank);
  if (act == kWork) {
    AddUpBf16(rank);
    PassOn(rank);
    Repeat(rank);
  }
  if (act == kMeasure) (void)Measure(rank);
  if (act == kDie) ::_exit(0);
  if (act == kPostAnotherSize) {
    (void)rank.group().AllReduce(rank.View(999)).Wait();
    EXPECT_FALSE(rank.queue().Synchronize().ok());
  }
  // The other end may still read this rank's window.
  char byte = 0;
  (void)!::read(0, &byte, 1);
}

// The other rank, as a process, and this one's end of what connects them.
class Peer {
 public:
  explicit Peer(Act act) {
    int sockets[2];
    int input[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    EXPECT_EQ(::pipe(input), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(input[0], 0);
      ::close(input[1]);
      ::close(sockets[0]);
      ::setenv(kSocketVariable, std::to_string(sockets[1]).c_str(), 1);
      ::setenv(kActVariable, std::to_string(act).c_str(), 1);
      ::execl("/proc/self/exe", "peer_group_test", "--gtest_filter=PeerGroupTest.ThePeerItself",
              nullptr);
      ::_exit(127);
    }
    ::close(sockets[1]);
    ::close(input[0]);
    socket_ = sockets[0];
    input_ = input[1];
  }
  ~Peer() {
    ::close(input_);
    int end = 0;
    EXPECT_EQ(::waitpid(child_, &end, 0), child_);
    EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 0) << end;
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  int socket() const { return socket_; }

 private:
  pid_t child_ = -1;
  int socket_ = -1;
  int input_ = -1;
};

TEST(PeerGroupTest, ThePeerItself) {
  const char* const socket = std::getenv(kSocketVariable);
  if (socket == nullptr) GTEST_SKIP() << "run by the other tests";
  RunPeer(std::atoi(socket), std::atoi(std::getenv(kActVariable)));
}

class TwoProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VisibleDevices() == 0) GTEST_SKIP() << "no GPU";
    if (!CanCopyBetween(0, DeviceOf(1))) GTEST_SKIP() << "the GPUs cannot reach each other";
  }
};

TEST_F(TwoProcessesTest, GetWhatTheOtherHasAndMayBeRepeated) {
  const Peer peer(kWork);
  Rank rank(0, peer.socket());
  AddUp(rank);
  AddUpBf16(rank);
  PassOn(rank);
  Repeat(rank);
}

TEST_F(TwoProcessesTest, ASumTakesWhatTheWiresNeed) {
  if (VisibleDevices() < 2) GTEST_SKIP() << "one GPU";
  const Peer peer(kMeasure);
  Rank rank(0, peer.socket());
  AddUp(rank);
  const double seconds = Measure(rank);
  constexpr double kBytes = Rank::kMostFloats * 4;
  std::printf("a sum of %.1f MB over two GPUs: %.0f us, %.0f GB/s read by each\n", kBytes * 1e-6,
              seconds * 1e6, kBytes / seconds * 1e-9);
  EXPECT_GT(kBytes / seconds, 50e9) << "that is no better than through the host";
}

TEST_F(TwoProcessesTest, ADeadRankEndsTheWaitOnTheDevice) {
  const Peer peer(kDie);
  Rank rank(0, peer.socket());
  AddUp(rank);
  const auto begin = std::chrono::steady_clock::now();
  (void)rank.group().AllReduce(rank.View(1000)).Wait();
  (void)rank.group().AllReduce(rank.View(1000)).Wait();
  const base::Status status = rank.queue().Synchronize();
  EXPECT_EQ(status.code(), base::StatusCode::kUnavailable) << status.message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
}

TEST_F(TwoProcessesTest, AnotherSizeIsFoundOnTheDevice) {
  const Peer peer(kPostAnotherSize);
  Rank rank(0, peer.socket());
  AddUp(rank);
  (void)rank.group().AllReduce(rank.View(1000)).Wait();
  const base::Status status = rank.queue().Synchronize();
  EXPECT_EQ(status.code(), base::StatusCode::kDataLoss) << status.message();
  rank.group().Close();
}

}  // namespace
}  // namespace longspan::backend::cuda
