#include "comm/link_group.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "comm/rank_sum.h"
#include "plan/exchange_volume.h"

namespace longspan::comm {
namespace {

using Bytes = RankGroup::Bytes;
using ConstBytes = RankGroup::ConstBytes;

constexpr int kTagShift = 48;

// The message that nobody sends: its receive ends with the link, so that a rank notices the end of
// another one also while it needs nothing of it.
constexpr uint64_t kNever = (uint64_t{1} << kTagShift) - 1;

// What the transfers of a group tell the thread that waits for them. They may tell it after the
// group's end.
struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  base::Status failure;           // the first
  std::vector<std::byte> buffer;  // of the messages that nobody sends

  // With the lock held.
  void Note(int peer, const base::Status& status) {
    if (!status.ok() && failure.ok())
      failure = status.WithContext(fmt::format("rank {} of a group", peer));
    changed.notify_all();
  }
};

// Transfers that end together.
class Round {
 public:
  explicit Round(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}

  void Add(int peer, const Transfer& transfer) {
    {
      const std::lock_guard lock(outcome_->mutex);
      ++counts_->pending;
    }
    transfer.OnDone([outcome = outcome_, counts = counts_, peer](const base::Status& status) {
      const std::lock_guard lock(outcome->mutex);
      --counts->pending;
      counts->failed |= !status.ok();
      outcome->Note(peer, status);
    });
  }

  // Sleeps until all have ended. Where one fails, or a rank has ended whose message is not there
  // yet, `close` is called, which ends the others.
  template <typename Close>
  base::Status Wait(const Close& close) const {
    std::unique_lock lock(outcome_->mutex);
    outcome_->changed.wait(lock, [&] { return counts_->pending == 0 || !outcome_->failure.ok(); });
    if (counts_->pending == 0 && !counts_->failed) return base::OkStatus();
    lock.unlock();
    close();
    lock.lock();
    outcome_->changed.wait(lock, [&] { return counts_->pending == 0; });
    return outcome_->failure;
  }

 private:
  struct Counts {
    int pending = 0;
    bool failed = false;
  };
  std::shared_ptr<Outcome> outcome_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

// Where the blocks of the ranks begin.
template <typename Size>
std::vector<Size> Begins(std::span<const Size> sizes) {
  std::vector<Size> begins(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), begins.begin(), Size{0});
  return begins;
}

class LinkGroup : public RankGroup {
 public:
  LinkGroup(std::vector<Link*> peers, int rank, uint64_t tag)
      : peers_(std::move(peers)), rank_(rank), next_number_(tag << kTagShift) {
    outcome_->buffer.resize(peers_.size());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      const Bytes place = Bytes(outcome_->buffer).subspan(static_cast<size_t>(peer), 1);
      peers_[peer]
          ->Receive(next_number_ + kNever, place)
          .OnDone([outcome = outcome_, peer](const base::Status& status) {
            const std::lock_guard lock(outcome->mutex);
            outcome->Note(peer, status);
          });
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  int64_t received_bytes() const override { return received_bytes_; }

  void Close() override {
    for (Link* peer : peers_)
      if (peer != nullptr) peer->Close();
  }

  Collective AllGather(Bytes all, std::span<const size_t> sizes) override {
    const uint64_t number = next_number_++;
    return Finish(PostGather(number, all, sizes));
  }

  Collective ReduceScatter(const tensor::View& x, std::span<const int64_t> counts) override {
    const uint64_t number = next_number_++;
    return FinishSum(PostReduce(number, x, counts));
  }

  Collective AllReduce(const tensor::View& x) override {
    const uint64_t number = next_number_;
    next_number_ += 2;
    if (x.bytes() <= plan::kOneStepSumBytes) return SmallAllReduce(number, x);
    const std::vector<int64_t> counts = EvenCounts(x.elements());
    const std::shared_ptr<Sum> sum = PostReduce(number, x, counts);
    return Collective([this, number, x, counts, sum] {
      LONGSPAN_RETURN_IF_ERROR(AddUp(*sum));
      std::vector<size_t> sizes;
      for (const int64_t count : counts)
        sizes.push_back(static_cast<size_t>(count * tensor::SizeOf(x.dtype())));
      return Wait(PostGather(number + 1, BytesOf(x), sizes));
    });
  }

  Collective AllToAll(std::span<const ConstBytes> outgoing,
                      std::span<const Bytes> incoming) override {
    LONGSPAN_CHECK(outgoing.size() == peers_.size() && incoming.size() == peers_.size() &&
                       outgoing[rank_].size() == incoming[rank_].size(),
                   "{} and {} blocks for {} ranks", outgoing.size(), incoming.size(), size());
    const uint64_t number = next_number_++;
    Round round(outcome_);
    for (int peer = 0; peer < size(); ++peer) {
      Receive(round, peer, number, incoming[peer]);
      Send(round, peer, number, outgoing[peer]);
    }
    if (!incoming[rank_].empty())
      std::memcpy(incoming[rank_].data(), outgoing[rank_].data(), incoming[rank_].size());
    return Finish(std::move(round));
  }

  Collective Broadcast(int root, Bytes data) override {
    const uint64_t number = next_number_++;
    Round round(outcome_);
    if (root != rank_) {
      Receive(round, root, number, data);
    } else {
      for (int peer = 0; peer < size(); ++peer) Send(round, peer, number, data);
    }
    return Finish(std::move(round));
  }

 private:
  using Scratch = std::vector<std::byte>;

  // A sum whose parts are on their way.
  struct Sum {
    explicit Sum(std::shared_ptr<Outcome> outcome) : round(std::move(outcome)) {}

    Round round;
    tensor::DType dtype = tensor::DType::kF32;
    std::vector<const std::byte*> blocks;  // by rank, each of `count` elements
    int64_t count = 0;
    std::byte* out = nullptr;
    Scratch scratch;  // what `blocks` of other ranks point into
  };

  static Bytes BytesOf(const tensor::View& x) {
    LONGSPAN_CHECK(x.contiguous(), "collective operations take dense tensors");
    return {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.bytes())};
  }

  std::vector<int64_t> EvenCounts(int64_t elements) const {
    std::vector<int64_t> counts;
    for (int64_t peer = 0; peer < size(); ++peer)
      counts.push_back(elements * (peer + 1) / size() - elements * peer / size());
    return counts;
  }

  // Nothing is sent to this rank itself, and nothing of no bytes.
  void Send(Round& round, int peer, uint64_t number, ConstBytes data) {
    if (peer == rank_ || data.empty()) return;
    round.Add(peer, peers_[peer]->Send(number, data));
  }
  void Receive(Round& round, int peer, uint64_t number, Bytes buffer) {
    if (peer == rank_ || buffer.empty()) return;
    received_bytes_ += static_cast<int64_t>(buffer.size());
    round.Add(peer, peers_[peer]->Receive(number, buffer));
  }

  base::Status Wait(const Round& round) {
    return round.Wait([this] { Close(); });
  }
  Collective Finish(Round round) {
    return Collective([this, round = std::move(round)] { return Wait(round); });
  }

  Round PostGather(uint64_t number, Bytes all, std::span<const size_t> sizes) {
    const std::vector<size_t> begins = Begins(sizes);
    LONGSPAN_CHECK(sizes.size() == peers_.size() && begins.back() + sizes.back() == all.size(),
                   "{} blocks make {} bytes, not {}", sizes.size(), begins.back() + sizes.back(),
                   all.size());
    Round round(outcome_);
    for (int peer = 0; peer < size(); ++peer) {
      Receive(round, peer, number, all.subspan(begins[peer], sizes[peer]));
      Send(round, peer, number, all.subspan(begins[rank_], sizes[rank_]));
    }
    return round;
  }

  // Sends every rank its block and receives the own one from all of them.
  std::shared_ptr<Sum> PostReduce(uint64_t number, const tensor::View& x,
                                  std::span<const int64_t> counts) {
    const Bytes all = BytesOf(x);
    const auto element = static_cast<size_t>(tensor::SizeOf(x.dtype()));
    const std::vector<int64_t> begins = Begins(counts);
    LONGSPAN_CHECK(counts.size() == peers_.size() && begins.back() + counts.back() == x.elements(),
                   "{} blocks do not make {} elements", counts.size(), x.elements());
    const auto block_of = [&](int peer) {
      return all.subspan(static_cast<size_t>(begins[peer]) * element,
                         static_cast<size_t>(counts[peer]) * element);
    };
    auto sum = PrepareSum(x.dtype(), counts[rank_], block_of(rank_).data());
    for (int peer = 0; peer < size(); ++peer) {
      Receive(sum->round, peer, number, PartFrom(*sum, peer));
      Send(sum->round, peer, number, block_of(peer));
    }
    return sum;
  }

  Collective SmallAllReduce(uint64_t number, const tensor::View& x) {
    const Bytes all = BytesOf(x);
    const auto sum = PrepareSum(x.dtype(), x.elements(), all.data());
    for (int peer = 0; peer < size(); ++peer) {
      Receive(sum->round, peer, number, PartFrom(*sum, peer));
      Send(sum->round, peer, number, all);
    }
    return FinishSum(sum);
  }

  // `out` is this rank's own part, and gets the sum.
  std::shared_ptr<Sum> PrepareSum(tensor::DType dtype, int64_t count, std::byte* out) {
    auto sum = std::make_shared<Sum>(outcome_);
    sum->dtype = dtype;
    sum->count = count;
    sum->out = out;
    const auto bytes = static_cast<size_t>(count * tensor::SizeOf(dtype));
    sum->scratch = TakeScratch(bytes * (peers_.size() - 1));
    std::byte* next = sum->scratch.data();
    for (int peer = 0; peer < size(); ++peer) {
      sum->blocks.push_back(peer == rank_ ? out : next);
      if (peer != rank_) next += bytes;
    }
    return sum;
  }

  // Where another rank's part of a sum is received.
  Bytes PartFrom(Sum& sum, int peer) const {
    if (peer == rank_) return {};
    const auto begin = static_cast<size_t>(sum.blocks[peer] - sum.scratch.data());
    const auto bytes = static_cast<size_t>(sum.count * tensor::SizeOf(sum.dtype));
    return Bytes(sum.scratch).subspan(begin, bytes);
  }

  Collective FinishSum(std::shared_ptr<Sum> sum) {
    return Collective([this, sum = std::move(sum)] { return AddUp(*sum); });
  }

  base::Status AddUp(Sum& sum) {
    base::Status status = Wait(sum.round);
    if (status.ok()) SumBlocks(sum.dtype, sum.blocks, sum.count, sum.out);
    unused_.push_back(std::move(sum.scratch));
    return status;
  }

  // Memory that stays the group's, so that a step takes none after the first.
  Scratch TakeScratch(size_t bytes) {
    Scratch scratch;
    if (!unused_.empty()) {
      scratch = std::move(unused_.back());
      unused_.pop_back();
    }
    if (scratch.size() < bytes) scratch.resize(bytes);
    return scratch;
  }

  const std::vector<Link*> peers_;
  const int rank_;
  uint64_t next_number_;
  int64_t received_bytes_ = 0;
  const std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  std::vector<Scratch> unused_;
};

}  // namespace

std::unique_ptr<RankGroup> CreateLinkGroup(std::vector<Link*> peers, int rank, uint64_t tag) {
  LONGSPAN_CHECK(rank >= 0 && static_cast<size_t>(rank) < peers.size(), "rank {} of {}", rank,
                 peers.size());
  return std::make_unique<LinkGroup>(std::move(peers), rank, tag);
}

}  // namespace longspan::comm
