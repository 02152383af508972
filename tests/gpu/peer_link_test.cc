// Messages from GPU to GPU between two processes: the second GPU if there is one, else both use the
// first.
#include "comm/peer_copy/peer_link.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <map>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/peer_memory.h"
#include "comm/socket/socket.h"

namespace longspan::backend::cuda {
namespace {

constexpr const char* kSocketVariable = "LONGSPAN_PEER_LINK_TEST_SOCKET";
constexpr uint64_t kSmall = 40;  // messages
constexpr uint64_t kLarge = 8;   // messages
constexpr size_t kLargeBytes = 64 << 20;
constexpr std::chrono::seconds kLongest(30);

int Devices() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

size_t SizeOf(uint64_t number) { return number < kSmall ? number * number * 37 : kLargeBytes; }

std::vector<uint32_t> Pattern(uint64_t number) {
  std::vector<uint32_t> words(SizeOf(number) / 4 + 1);
  uint64_t state = number * 0x9e3779b97f4a7c15 + 1;
  for (uint32_t& word : words) {
    state = state * 6364136223846793005 + 1442695040888963407;
    word = static_cast<uint32_t>(state >> 32);
  }
  return words;
}

// Buffers of all messages, cut from one allocation at odd places.
class Buffers {
 public:
  Buffers() {
    size_t bytes = 0;
    for (uint64_t number = 0; number < kSmall + kLarge; ++number) {
      offsets_.push_back(bytes + 16);
      bytes += SizeOf(number) + 16;
    }
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&base_), bytes + 16), cudaSuccess);
    EXPECT_EQ(cudaMemset(base_, 0xa5, bytes + 16), cudaSuccess);
  }
  ~Buffers() { (void)cudaFree(base_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::span<std::byte> Of(uint64_t number) const {
    return {base_ + offsets_[number], SizeOf(number)};
  }
  void Fill(uint64_t number) const {
    EXPECT_EQ(cudaMemcpy(Of(number).data(), Pattern(number).data(), SizeOf(number),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  bool Holds(uint64_t number) const {
    std::vector<std::byte> bytes(SizeOf(number));
    EXPECT_EQ(cudaMemcpy(bytes.data(), Of(number).data(), bytes.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    const auto expected = Pattern(number);
    return bytes.empty() || std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0;
  }

 private:
  std::byte* base_ = nullptr;
  std::vector<size_t> offsets_;
};

std::unique_ptr<comm::Link> Connect(int socket, comm::PeerMemory& memory) {
  return comm::CreatePeerLink(comm::CreateSocketLink(comm::FileDescriptor(socket)).value(), memory);
}

// Sends all messages back, in another order, once they have come.
void RunPeer(int socket) {
  const int device = Devices() - 1;
  const auto memory = CreatePeerMemory(device).value();
  const Buffers buffers;
  const auto link = Connect(socket, *memory);
  std::map<uint64_t, comm::Transfer> transfers;
  for (uint64_t number = kSmall + kLarge; number-- > 0;)
    transfers[number] = link->Receive(number, buffers.Of(number));
  for (auto& [number, transfer] : transfers) {
    ASSERT_TRUE(transfer.WaitFor(kLongest).ok()) << number;
    EXPECT_TRUE(buffers.Holds(number)) << number;
    transfer = link->Send(number, buffers.Of(number));
  }
  for (const auto& [number, transfer] : transfers)
    ASSERT_TRUE(transfer.WaitFor(kLongest).ok()) << number;
  // A size that the other end does not expect.
  EXPECT_EQ(link->Receive(1000, buffers.Of(5)).WaitFor(kLongest).code(),
            base::StatusCode::kDataLoss);
  // The other end closes.
  EXPECT_EQ(link->Receive(1001, buffers.Of(5)).WaitFor(kLongest).code(),
            base::StatusCode::kUnavailable);
}

pid_t StartPeer(int socket) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv(kSocketVariable, std::to_string(socket).c_str(), 1);
  ::execl("/proc/self/exe", "peer_link_test", "--gtest_filter=PeerLinkTest.ThePeerItself", nullptr);
  ::_exit(127);
}

TEST(PeerLinkTest, ThePeerItself) {
  const char* const socket = std::getenv(kSocketVariable);
  if (socket == nullptr) GTEST_SKIP() << "run by the other test";
  RunPeer(std::atoi(socket));
}

TEST(PeerLinkTest, MessagesPassBetweenProcesses) {
  if (Devices() == 0) GTEST_SKIP() << "no GPU";
  if (!CanCopyBetween(0, Devices() - 1)) GTEST_SKIP() << "the GPUs cannot reach each other";
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t child = StartPeer(sockets[1]);
  ::close(sockets[1]);
  const auto memory = CreatePeerMemory(0).value();
  const Buffers sent;
  const Buffers returned;
  auto link = Connect(sockets[0], *memory);
  std::vector<comm::Transfer> transfers;
  for (uint64_t number = 0; number < kSmall + kLarge; ++number) {
    sent.Fill(number);
    transfers.push_back(link->Send(number, sent.Of(number)));
    transfers.push_back(link->Receive(number, returned.Of(number)));
  }
  for (const comm::Transfer& transfer : transfers) ASSERT_TRUE(transfer.WaitFor(kLongest).ok());
  for (uint64_t number = 0; number < kSmall + kLarge; ++number)
    EXPECT_TRUE(returned.Holds(number)) << number;
  EXPECT_EQ(link->Send(1000, sent.Of(6)).WaitFor(kLongest).code(), base::StatusCode::kDataLoss);
  link->Close();
  int end = 0;
  ASSERT_EQ(::waitpid(child, &end, 0), child);
  EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 0) << end;
}

// What a copy of a chunk's residual stream takes, in one process.
TEST(PeerLinkTest, CopiesAtTheRateOfTheWires) {
  if (Devices() == 0) GTEST_SKIP() << "no GPU";
  const int other = Devices() - 1;
  if (!CanCopyBetween(0, other)) GTEST_SKIP() << "the GPUs cannot reach each other";
  ASSERT_EQ(cudaSetDevice(other), cudaSuccess);
  const Buffers target;
  const auto target_memory = CreatePeerMemory(other).value();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  if (other != 0) {
    ASSERT_EQ(cudaDeviceEnablePeerAccess(other, 0), cudaSuccess);
  }
  const auto memory = CreatePeerMemory(0).value();
  const Buffers source;
  source.Fill(kSmall);
  const auto place = target_memory->Export(target.Of(kSmall)).value();
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(memory->Copy(source.Of(kSmall), place).WaitFor(kLongest).ok());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, kLargeBytes / took.count());
  }
  EXPECT_TRUE(target.Holds(kSmall));
  std::printf("64 MiB from GPU 0 to GPU %d: %.0f GB/s with post and wake-up\n", other, best * 1e-9);
  EXPECT_GT(best, 50e9) << "that is no better than through the host";
}

}  // namespace
}  // namespace longspan::backend::cuda
