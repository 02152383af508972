#include "backend/cuda/peer_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <numeric>
#include <unistd.h>
#include <utility>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_queue.h"
#include "backend/cuda/peer_kernels.h"
#include "backend/cuda/peer_memory.h"
#include "base/check.h"
#include "base/mix_bits.h"
#include "comm/link_group.h"
#include "plan/exchange_volume.h"

namespace longspan::backend::cuda {
namespace {

using Bytes = comm::RankGroup::Bytes;
using ConstBytes = comm::RankGroup::ConstBytes;

// Of the message that nobody sends, as in comm::LinkGroup: its receive ends with the link.
constexpr uint64_t kNeverTag = uint64_t{1} << 14;
constexpr int kTagShift = 48;

// Why the kernels are to leave, and whether they did. What links tell may come after the group's
// end.
class Ending {
 public:
  static base::Result<std::shared_ptr<Ending>> Create() {
    auto ending = std::make_shared<Ending>();
    LONGSPAN_ASSIGN_OR_RETURN(ending->memory_, AllocatePinned(sizeof(PeerControl)));
    std::memset(ending->memory_.data(), 0, sizeof(PeerControl));
    return ending;
  }

  PeerControl* control() const { return static_cast<PeerControl*>(memory_.data()); }

  // Ends what waits on the device. The first status stays.
  void End(const base::Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
    Set(control()->closed);
  }
  // An operation was not even queued.
  void Skip(const base::Status& status) {
    End(status);
    Set(control()->left);
  }

  // What became of what the queue has done. Ok while nothing has missed anything.
  base::Status Check() {
    if (IsSet(control()->differs))
      return base::DataLoss(
          "a rank of a group has posted another operation or size than this one: all ranks must "
          "follow the same step plan");
    if (!IsSet(control()->left)) return base::OkStatus();
    const std::lock_guard lock(mutex_);
    return status_;
  }

  std::byte never = {};  // what nobody sends

 private:
  static void Set(uint32_t& word) { __atomic_store_n(&word, 1U, __ATOMIC_SEQ_CST); }
  static bool IsSet(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_SEQ_CST) != 0; }

  tensor::Buffer memory_;
  std::mutex mutex_;
  base::Status status_;
};

// What a rank tells the others.
struct Introduction {
  cudaIpcMemHandle_t handle;
  uint64_t address = 0;  // in its process
  int32_t process = 0;
  int32_t device = 0;
};

// Something that is the same at all ranks, if they post the same.
uint32_t SignatureOf(std::initializer_list<uint64_t> words, std::span<const int64_t> sizes = {}) {
  uint64_t bits = 0;
  for (const uint64_t word : words) bits = base::MixBits(bits + word);
  for (const int64_t size : sizes) bits = base::MixBits(bits + static_cast<uint64_t>(size));
  return static_cast<uint32_t>(bits >> 32);
}
enum Kind : uint64_t { kAllReduce = 1, kReduceScatter, kAllGather, kAllToAll, kBroadcast };

class PeerGroup : public comm::RankGroup {
 public:
  PeerGroup(CudaQueue& queue, std::vector<comm::Link*> peers, int rank, uint64_t tag)
      : queue_(queue), peers_(std::move(peers)), tag_(tag) {
    world_.rank = rank;
    world_.size = static_cast<int>(peers_.size());
    host_ = comm::CreateLinkGroup(peers_, rank, tag);
  }

  base::Status Open() {
    LONGSPAN_RETURN_IF_CUDA(cudaSetDevice(queue_.device()), "use the GPU");
    LONGSPAN_RETURN_IF_CUDA(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking),
                            "make a stream on the GPU");
    LONGSPAN_RETURN_IF_CUDA(LoadPeerSums(), "load what ranks do together");
    LONGSPAN_RETURN_IF_CUDA(LoadPeerExchanges(), "load what ranks do together");
    LONGSPAN_ASSIGN_OR_RETURN(ending_, Ending::Create());
    world_.control = ending_->control();
    LONGSPAN_ASSIGN_OR_RETURN(memory_, AllocateDevice(kPeerMemoryBytes));
    LONGSPAN_RETURN_IF_ERROR(Introduce());
    WatchPeers();
    check_ = queue_.AddCheck([ending = ending_] { return ending->Check(); });
    return base::OkStatus();
  }

  ~PeerGroup() override {
    if (check_ >= 0) queue_.RemoveCheck(check_);
    if (ending_ != nullptr) ending_->End(ClosedStatus());
    (void)cudaSetDevice(queue_.device());
    (void)cudaStreamSynchronize(queue_.stream());
    if (side_ != nullptr) {
      (void)cudaStreamSynchronize(side_);
      (void)cudaStreamDestroy(side_);
    }
    for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    for (void* const opened : opened_) (void)cudaIpcCloseMemHandle(opened);
  }

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  int64_t received_bytes() const override { return received_bytes_; }
  bool repeatable() const override { return !together_; }

  void Close() override {
    ending_->End(ClosedStatus());
    for (comm::Link* peer : peers_)
      if (peer != nullptr) peer->Close();
  }

  comm::Collective AllReduce(const tensor::View& x) override {
    LONGSPAN_CHECK(x.contiguous(), "collective operations take dense tensors");
    if (size() == 1 || x.elements() == 0) return {};
    // Two ranks read each other's once in either way.
    const bool two_steps = size() > 2 && x.bytes() > plan::kOneStepSumBytes;
    const uint32_t signature =
        SignatureOf({kAllReduce, static_cast<uint64_t>(x.elements()), CodeOf(x.dtype())});
    // As if a rank's share were cut off exactly.
    const int64_t share = EvenEnd(x.elements(), rank() + 1) - EvenEnd(x.elements(), rank());
    received_bytes_ +=
        two_steps ? ((size() - 1) * share + x.elements() - share) * tensor::SizeOf(x.dtype())
                  : (size() - 1) * x.bytes();
    return OnQueue("all_reduce", [&] {
      PeerAllReduce(queue_.stream(), world_, signature, x.dtype(), x.raw(), x.elements(),
                    two_steps);
    });
  }

  comm::Collective ReduceScatter(const tensor::View& x, std::span<const int64_t> counts) override {
    LONGSPAN_CHECK(x.contiguous() && std::ssize(counts) == size() &&
                       std::accumulate(counts.begin(), counts.end(), int64_t{0}) == x.elements(),
                   "{} blocks do not make {} elements", counts.size(), x.elements());
    if (size() == 1 || x.elements() == 0) return {};
    received_bytes_ += (size() - 1) * counts[rank()] * tensor::SizeOf(x.dtype());
    PeerBlockSizes sizes = {};
    std::copy(counts.begin(), counts.end(), sizes.of);
    const uint32_t signature = SignatureOf({kReduceScatter, CodeOf(x.dtype())}, counts);
    return OnQueue("reduce_scatter", [&] {
      PeerReduceScatter(queue_.stream(), world_, signature, x.dtype(), x.raw(), sizes);
    });
  }

  comm::Collective AllGather(Bytes all, std::span<const size_t> sizes) override {
    LONGSPAN_CHECK(std::ssize(sizes) == size() &&
                       std::accumulate(sizes.begin(), sizes.end(), size_t{0}) == all.size(),
                   "{} blocks do not make {} bytes", sizes.size(), all.size());
    if (size() == 1 || all.empty()) return {};
    received_bytes_ += static_cast<int64_t>(all.size() - sizes[rank()]);
    return Beside("all_gather", [&] { Gather(side_, kAllGather, all, sizes); });
  }

  comm::Collective Broadcast(int root, Bytes data) override {
    if (size() == 1 || data.empty()) return {};
    if (root != rank()) received_bytes_ += static_cast<int64_t>(data.size());
    std::vector<size_t> sizes(peers_.size());
    sizes[root] = data.size();
    return OnQueue("broadcast", [&] { Gather(queue_.stream(), kBroadcast, data, sizes); });
  }

  comm::Collective AllToAll(std::span<const ConstBytes> outgoing,
                            std::span<const Bytes> incoming) override {
    LONGSPAN_CHECK(outgoing.size() == peers_.size() && incoming.size() == peers_.size() &&
                       outgoing[rank()].size() == incoming[rank()].size(),
                   "{} and {} blocks for {} ranks", outgoing.size(), incoming.size(), size());
    PeerMessages messages = {};
    for (int peer = 0; peer < size(); ++peer) {
      messages.outgoing[peer] = outgoing[peer].data();
      messages.outgoing_bytes[peer] = std::ssize(outgoing[peer]);
      messages.incoming[peer] = incoming[peer].data();
      messages.incoming_bytes[peer] = std::ssize(incoming[peer]);
      if (peer == rank()) continue;
      received_bytes_ += std::ssize(incoming[peer]);
      const std::array<int64_t, 2> both = {std::ssize(outgoing[peer]), std::ssize(incoming[peer])};
      // From the lower rank to the higher one, and back.
      const bool lower = rank() < peer;
      messages.signatures[peer] =
          SignatureOf({kAllToAll}, std::array{both[lower ? 0 : 1], both[lower ? 1 : 0]});
    }
    return Beside("all_to_all", [&] { PeerAllToAll(side_, world_, messages); });
  }

 private:
  static uint64_t CodeOf(tensor::DType type) { return static_cast<uint64_t>(type); }
  static base::Status ClosedStatus() {
    return base::Unavailable("this end of a group of ranks was closed");
  }
  int64_t EvenEnd(int64_t elements, int64_t ranks) const { return elements * ranks / size(); }

  // Tells the others where this rank's memory is, and maps theirs.
  base::Status Introduce() {
    std::vector<Introduction> all(peers_.size());
    Introduction& own = all[rank()];
    LONGSPAN_RETURN_IF_CUDA(cudaIpcGetMemHandle(&own.handle, memory_.data()),
                            "share memory of the GPU");
    own.address = reinterpret_cast<uint64_t>(memory_.data());
    own.process = ::getpid();
    own.device = queue_.device();
    const std::vector<size_t> sizes(peers_.size(), sizeof(Introduction));
    LONGSPAN_RETURN_IF_ERROR(
        host_->AllGather(std::as_writable_bytes(std::span(all)), sizes).Wait());
    for (int peer = 0; peer < size(); ++peer) {
      LONGSPAN_ASSIGN_OR_RETURN(world_.memory[peer], Map(all[peer], peer));
      for (int other = 0; other < peer; ++other)
        together_ |= all[peer].process == all[other].process;
    }
    return base::OkStatus();
  }

  base::Result<std::byte*> Map(const Introduction& peer, int peer_rank) {
    auto* const address = reinterpret_cast<std::byte*>(peer.address);
    if (peer_rank == rank()) return address;
    if (!CanCopyBetween(queue_.device(), peer.device))
      return base::InvalidArgument(
          "GPU {} cannot reach the memory of GPU {}, and the ranks of a stage must: choose others "
          "with --base-gpu-id and --gpu-id-step, or use --pp-size",
          queue_.device(), peer.device);
    if (peer.process == ::getpid()) {
      if (peer.device == queue_.device()) return address;
      const cudaError_t error = cudaDeviceEnablePeerAccess(peer.device, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError();
      else
        LONGSPAN_RETURN_IF_CUDA(error, "reach the memory of another GPU");
      return address;
    }
    void* base = nullptr;
    LONGSPAN_RETURN_IF_CUDA(
        cudaIpcOpenMemHandle(&base, peer.handle, cudaIpcMemLazyEnablePeerAccess),
        "reach the memory of another rank's GPU");
    opened_.push_back(base);
    return static_cast<std::byte*>(base);
  }

  // The end of a link ends the waits on the device.
  void WatchPeers() {
    const uint64_t number = (tag_ + kNeverTag) << kTagShift;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      peers_[peer]
          ->Receive(number, std::span(&ending_->never, 1))
          .OnDone([ending = ending_, peer](const base::Status& status) {
            if (!status.ok())
              ending->End(status.WithContext(fmt::format("rank {} of a group", peer)));
          });
    }
  }

  // `launch` on the queue's stream, behind what goes on beside it.
  template <typename Launch>
  comm::Collective OnQueue(std::string_view operation, const Launch& launch) {
    if (beside_ > 0) {
      const cudaEvent_t event = TakeEvent();
      Note(cudaEventRecord(event, side_));
      Note(cudaStreamWaitEvent(queue_.stream(), event));
      events_.push_back(event);
    }
    Queue(operation, launch);
    return {};
  }

  // `launch` on the side stream, behind what the queue has so far.
  template <typename Launch>
  comm::Collective Beside(std::string_view operation, const Launch& launch) {
    const cudaEvent_t event = TakeEvent();
    Note(cudaEventRecord(event, queue_.stream()));
    Note(cudaStreamWaitEvent(side_, event));
    Queue(operation, launch);
    Note(cudaEventRecord(event, side_));
    ++beside_;
    return comm::Collective([this, event] {
      Note(cudaStreamWaitEvent(queue_.stream(), event));
      events_.push_back(event);
      --beside_;
      return base::OkStatus();
    });
  }

  template <typename Launch>
  void Queue(std::string_view operation, const Launch& launch) {
    if (!Meet()) return;
    launch();
    queue_.Note(cudaGetLastError(), operation);
    (void)Meet();
  }

  // Threads of one process wait for each other here: all are about to queue the same, or all have.
  bool Meet() {
    if (!together_) return true;
    std::vector<std::byte> all(peers_.size());
    const base::Status status = host_->AllGather(all, std::vector<size_t>(peers_.size(), 1)).Wait();
    if (!status.ok()) ending_->Skip(status);
    return status.ok();
  }

  void Gather(cudaStream_t stream, Kind kind, Bytes all, std::span<const size_t> sizes) {
    PeerBlockSizes blocks = {};
    std::copy(sizes.begin(), sizes.end(), blocks.of);
    PeerAllGather(stream, world_,
                  SignatureOf({kind}, std::span(blocks.of, static_cast<size_t>(size()))),
                  all.data(), blocks);
  }

  cudaEvent_t TakeEvent() {
    cudaEvent_t event = nullptr;
    if (events_.empty()) {
      Note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    } else {
      event = events_.back();
      events_.pop_back();
    }
    return event;
  }
  void Note(cudaError_t error) { queue_.Note(error, "wait for other ranks"); }

  CudaQueue& queue_;
  const std::vector<comm::Link*> peers_;
  const uint64_t tag_;
  PeerWorld world_ = {};
  std::unique_ptr<comm::RankGroup> host_;
  std::shared_ptr<Ending> ending_;
  tensor::Buffer memory_;
  std::vector<void*> opened_;  // memory of others
  bool together_ = false;      // some ranks are threads of one process
  cudaStream_t side_ = nullptr;
  std::vector<cudaEvent_t> events_;  // that nobody uses
  int beside_ = 0;                   // operations on the side stream that nobody has waited for
  int64_t received_bytes_ = 0;
  int check_ = -1;
};

}  // namespace

base::Result<std::unique_ptr<comm::RankGroup>> CreatePeerGroup(tensor::Queue& queue,
                                                               std::vector<comm::Link*> peers,
                                                               int rank, uint64_t tag) {
  LONGSPAN_CHECK(tag < kNeverTag, "the tag of a group is {}", tag);
  if (peers.size() > kMostPeerRanks)
    return base::InvalidArgument(
        "{} GPUs of one stage work together, and there are {} ranks: use "
        "--pp-size",
        kMostPeerRanks, peers.size());
  auto group =
      std::make_unique<PeerGroup>(static_cast<CudaQueue&>(queue), std::move(peers), rank, tag);
  LONGSPAN_RETURN_IF_ERROR(group->Open());
  return std::unique_ptr<comm::RankGroup>(std::move(group));
}

}  // namespace longspan::backend::cuda
