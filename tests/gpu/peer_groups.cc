// Groups on a GPU for the conformance suite of groups: ranks that are threads and share one GPU.
// The suite's buffers are the host's; here they are copied to the device and back.
#include <cstring>
#include <memory>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_queue.h"
#include "backend/cuda/peer_group.h"
#include "base/check.h"
#include "comm/conformance/transports.h"

namespace longspan::comm {
namespace {

using backend::cuda::CudaQueue;

constexpr int64_t kArenaBytes = int64_t{64} << 20;

class StagedGroup : public RankGroup {
 public:
  StagedGroup(std::vector<Link*> peers, int rank, uint64_t tag)
      : queue_(CudaQueue::Create(0).value()),
        arena_(backend::cuda::AllocateDevice(kArenaBytes).value()),
        group_(backend::cuda::CreatePeerGroup(*queue_, std::move(peers), rank, tag).value()) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int64_t received_bytes() const override { return group_->received_bytes(); }
  void Close() override { group_->Close(); }

  Collective AllGather(Bytes all, std::span<const size_t> sizes) override {
    const Bytes device = ToDevice(all);
    return Finish(group_->AllGather(device, sizes), {{device, all}});
  }
  Collective ReduceScatter(const tensor::View& x, std::span<const int64_t> counts) override {
    const Bytes host = BytesOf(x);
    const Bytes device = ToDevice(host);
    return Finish(group_->ReduceScatter(At(device, x), counts), {{device, host}});
  }
  Collective AllReduce(const tensor::View& x) override {
    const Bytes host = BytesOf(x);
    const Bytes device = ToDevice(host);
    return Finish(group_->AllReduce(At(device, x)), {{device, host}});
  }
  Collective AllToAll(std::span<const ConstBytes> outgoing,
                      std::span<const Bytes> incoming) override {
    std::vector<ConstBytes> from;
    std::vector<Bytes> to;
    std::vector<std::pair<Bytes, Bytes>> results;
    for (const ConstBytes& each : outgoing) from.emplace_back(ToDevice(each));
    for (const Bytes& each : incoming) {
      to.push_back(Take(each.size()));
      results.emplace_back(to.back(), each);
    }
    return Finish(group_->AllToAll(from, to), std::move(results));
  }
  Collective Broadcast(int root, Bytes data) override {
    const Bytes device = ToDevice(data);
    return Finish(group_->Broadcast(root, device), {{device, data}});
  }

 private:
  static Bytes BytesOf(const tensor::View& x) {
    return {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.bytes())};
  }
  static tensor::View At(Bytes device, const tensor::View& x) {
    return {device.data(), x.dtype(), {x.elements()}};
  }

  Bytes Take(size_t bytes) {
    LONGSPAN_CHECK(used_ + static_cast<int64_t>(bytes) <= kArenaBytes, "the arena is full");
    auto* const begin = static_cast<std::byte*>(arena_.data()) + used_;
    used_ += static_cast<int64_t>((bytes + 255) / 256 * 256);
    return {begin, bytes};
  }
  Bytes ToDevice(ConstBytes host) {
    const Bytes device = Take(host.size());
    if (!host.empty()) (void)queue_->Upload(host, device.data());
    return device;
  }

  // Results are pairs of where they are and where they go.
  Collective Finish(Collective operation, std::vector<std::pair<Bytes, Bytes>> results) {
    ++pending_;
    const auto shared = std::make_shared<Collective>(std::move(operation));
    return Collective([this, shared, results = std::move(results)] {
      base::Status status = shared->Wait();
      for (const auto& [device, host] : results)
        if (status.ok() && !host.empty()) status = queue_->Download(device.data(), host);
      if (status.ok()) status = queue_->Synchronize();
      if (--pending_ == 0) used_ = 0;
      return status;
    });
  }

  std::unique_ptr<CudaQueue> queue_;
  tensor::Buffer arena_;
  int64_t used_ = 0;
  int pending_ = 0;
  std::unique_ptr<RankGroup> group_;
};

}  // namespace

std::vector<Transport> GroupTransports() {
  if (!backend::cuda::CudaBackend().ok()) return {};
  Transport transport = LinkTransports().front();
  transport.name = "Gpu";
  transport.make_group = [](std::vector<Link*> peers, int rank, uint64_t tag) {
    return std::make_unique<StagedGroup>(std::move(peers), rank, tag);
  };
  return {std::move(transport)};
}

}  // namespace longspan::comm
