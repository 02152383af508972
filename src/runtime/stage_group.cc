#include "runtime/stage_group.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "kv/page_pool.h"
#include "runtime/group_monitor.h"
#include "runtime/wire.h"

namespace longspan::runtime {
namespace {

constexpr std::chrono::milliseconds kOthersEndWithin(500);

// The pages that the memory of one host or GPU allows.
base::Result<int64_t> PagesOfMemory(const CapacityOptions& options,
                                    const std::vector<RankReady>& ranks, int page_size) {
  int64_t page_bytes = 0;
  int64_t available = INT64_MAX;
  int64_t untouched = 0;  // reserved already, but counted as available until it is written to
  for (const RankReady& rank : ranks) {
    page_bytes += rank.kv_bytes_per_page;
    untouched += rank.workspace_bytes;
    available = std::min(available, rank.available_bytes);
  }
  available = std::max<int64_t>(0, available - untouched);
  constexpr double kMib = 1 << 20;
  if (options.max_total_tokens) {
    const int64_t pages = kv::PagesFor(*options.max_total_tokens, page_size);
    if (pages > available / page_bytes)
      return base::ResourceExhausted(
          "--max-total-tokens {} needs {:.0f} MiB of KV cache and {:.0f} MiB are free: ask for at "
          "most {}",
          *options.max_total_tokens,
          static_cast<double>(page_bytes) * static_cast<double>(pages) / kMib,
          static_cast<double>(available) / kMib, available / page_bytes * page_size);
    return pages;
  }
  const auto budget =
      static_cast<int64_t>(static_cast<double>(available) * options.memory_fraction);
  const int64_t pages = std::min(budget / page_bytes, kv::PagesFor(options.most_tokens, page_size));
  if (pages < 1)
    return base::ResourceExhausted(
        "{:.0f} MiB of memory are left for the KV cache, not enough for one page of {} tokens "
        "({:.1f} MiB)",
        static_cast<double>(budget) / kMib, page_size, static_cast<double>(page_bytes) / kMib);
  return pages;
}

}  // namespace

int64_t GroupInfo::kv_bytes_per_token() const {
  int64_t bytes = 0;
  for (const RankReady& rank : ranks) bytes += rank.kv_bytes_per_page / page_size;
  return bytes;
}

base::Result<int64_t> ChoosePages(const CapacityOptions& options,
                                  const std::vector<RankReady>& ranks, int page_size) {
  std::map<std::pair<int32_t, int32_t>, std::vector<RankReady>> memories;
  for (const RankReady& rank : ranks) memories[{rank.node, rank.device}].push_back(rank);
  int64_t pages = INT64_MAX;
  for (const auto& [place, sharing] : memories) {
    LONGSPAN_ASSIGN_OR_RETURN(const int64_t fit, PagesOfMemory(options, sharing, page_size));
    pages = std::min(pages, fit);
  }
  return pages;
}

namespace {

// Owns the ranks. A thread for each reads what it says.
class RankGroup : public StageGroup {
 public:
  RankGroup(std::vector<std::unique_ptr<RankHandle>> ranks, const RankConfig& config);
  ~RankGroup() override;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  base::Status BringUpRanks(const std::vector<RankConfig>& configs, const CapacityOptions& capacity,
                            const Progress& progress);
  // Serialised once, and written once for every node.
  base::Status Submit(const plan::StepPlan& plan) override;
  base::Result<plan::StepResult> Next() override;

 private:
  struct Event {
    size_t rank = 0;
    base::Result<Frame> frame;
  };

  std::string NameOf(size_t rank) const { return spec::RankName(mesh_, static_cast<int>(rank)); }
  base::Status StartThreads(const RankConfig& config);
  void ReadLoop(size_t rank);
  void PushEvent(size_t rank, base::Result<Frame> frame);
  Event NextEvent();
  // The frame of the next event, if it is of a kind that is due; a failure otherwise.
  base::Result<std::pair<size_t, Frame>> NextFrame(std::initializer_list<FrameKind> due);
  base::Result<std::pair<size_t, Frame>> TakeFrame(std::initializer_list<FrameKind> due);
  base::Status RankFailure(std::optional<size_t> rank, const base::Status& channel_status);
  // Of a failure that a rank reports: where it is that a neighbour has gone, the neighbour's own
  // reason if it comes in a moment.
  base::Status FirstCause(base::Status failure);
  base::Status CollectReady(const Progress& progress);
  base::Status CollectAllocated();

  std::vector<std::unique_ptr<RankHandle>> ranks_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
  std::vector<std::thread> readers_;
  std::unique_ptr<GroupMonitor> monitor_;
  bool failed_ = false;
};

RankGroup::RankGroup(std::vector<std::unique_ptr<RankHandle>> ranks, const RankConfig& config)
    : StageGroup(config.mesh, config.loops()), ranks_(std::move(ranks)) {}

RankGroup::~RankGroup() {
  for (const auto& rank : ranks_) failed_ ? rank->Kill() : rank->RequestEnd();
  for (std::thread& reader : readers_) reader.join();
  monitor_.reset();
}

base::Status RankGroup::BringUpRanks(const std::vector<RankConfig>& configs,
                                     const CapacityOptions& capacity, const Progress& progress) {
  LONGSPAN_RETURN_IF_ERROR(StartThreads(configs[0]));
  for (size_t rank = 0; rank < configs.size(); ++rank) {
    if (!ranks_[rank]->channel().Send(EncodeConfigure(configs[rank])).ok()) {
      // A rank that died at once is told with its reason by the next event.
      break;
    }
  }
  info_.page_size = configs[0].page_size;
  LONGSPAN_RETURN_IF_ERROR(CollectReady(progress));
  for (size_t rank = 0; rank < configs.size(); ++rank) {
    info_.ranks[rank].node = configs[rank].node;
    info_.ranks[rank].device = configs[rank].device;
  }
  LONGSPAN_ASSIGN_OR_RETURN(info_.pages, ChoosePages(capacity, info_.ranks, info_.page_size));
  for (const auto& rank : ranks_)
    if (!rank->channel().Send(EncodeAllocate(info_.pages)).ok()) break;
  LONGSPAN_RETURN_IF_ERROR(CollectAllocated());
  return base::OkStatus();
}

base::Status RankGroup::StartThreads(const RankConfig& config) {
  std::vector<comm::Channel*> channels;
  for (const auto& rank : ranks_) channels.push_back(&rank->channel());
  try {
    monitor_ = std::make_unique<GroupMonitor>(
        config, channels,
        [this](size_t rank, base::Status status) { PushEvent(rank, std::move(status)); });
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      readers_.emplace_back([this, rank] { ReadLoop(rank); });
  } catch (const std::system_error& error) {
    return base::ResourceExhausted("cannot start a thread for every stage: {}",
                                   error.code().message());
  }
  return base::OkStatus();
}

base::Status RankGroup::CollectReady(const Progress& progress) {
  std::vector<double> shares(ranks_.size(), 0.0);
  info_.ranks.resize(ranks_.size());
  for (size_t ready = 0; ready < ranks_.size();) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto frame,
                              NextFrame({FrameKind::kLoading, FrameKind::kReady}));
    const auto& [rank, bytes] = frame;
    LONGSPAN_ASSIGN_OR_RETURN(const FrameKind kind, KindOf(bytes));
    if (kind == FrameKind::kLoading) {
      LONGSPAN_ASSIGN_OR_RETURN(shares[rank], DecodeLoading(bytes));
      if (progress) progress(*std::min_element(shares.begin(), shares.end()));
      continue;
    }
    LONGSPAN_ASSIGN_OR_RETURN(info_.ranks[rank], DecodeReady(bytes));
    monitor_->OnReady(rank);
    shares[rank] = 1;
    ++ready;
  }
  if (progress) progress(1);
  return base::OkStatus();
}

base::Status RankGroup::CollectAllocated() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto frame = NextFrame({FrameKind::kAllocated});
    if (!frame.ok()) return frame.status();
  }
  return base::OkStatus();
}

base::Status RankGroup::Submit(const plan::StepPlan& plan) {
  const Frame frame = EncodePlan(plan);
  monitor_->OnSubmit();
  for (const auto& rank : ranks_) {
    const base::Status status = rank->SendPlan(frame);
    // Of ranks that share a log any may be lost: their channels tell.
    if (!status.ok()) return RankFailure(std::nullopt, status);
  }
  return base::OkStatus();
}

base::Result<plan::StepResult> RankGroup::Next() {
  LONGSPAN_ASSIGN_OR_RETURN(const auto frame, NextFrame({FrameKind::kResult}));
  LONGSPAN_ASSIGN_OR_RETURN(auto result, DecodeResult(frame.second));
  LONGSPAN_RETURN_IF_ERROR(result.status);
  return result;
}

void RankGroup::ReadLoop(size_t rank) {
  while (true) {
    base::Result<Frame> frame = ranks_[rank]->channel().Receive();
    if (!frame.ok()) {
      monitor_->OnEnd(rank);
      return PushEvent(rank, std::move(frame));
    }
    monitor_->OnSign(rank);
    const auto kind = KindOf(*frame);
    if (kind.ok() && *kind == FrameKind::kBeat) {
      // A broken one is as good as none.
      if (const auto beat = DecodeBeat(*frame); beat.ok()) monitor_->OnBeat(rank, *beat);
      continue;
    }
    if (kind.ok() && *kind == FrameKind::kResult) monitor_->OnResult();
    PushEvent(rank, std::move(frame));
  }
}

void RankGroup::PushEvent(size_t rank, base::Result<Frame> frame) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back({rank, std::move(frame)});
  }
  arrived_.notify_one();
}

RankGroup::Event RankGroup::NextEvent() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !events_.empty(); });
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

base::Result<std::pair<size_t, Frame>> RankGroup::NextFrame(std::initializer_list<FrameKind> due) {
  auto frame = TakeFrame(due);
  if (!frame.ok()) failed_ = true;
  return frame;
}

base::Result<std::pair<size_t, Frame>> RankGroup::TakeFrame(std::initializer_list<FrameKind> due) {
  Event event = NextEvent();
  if (!event.frame.ok()) return RankFailure(event.rank, event.frame.status());
  LONGSPAN_ASSIGN_OR_RETURN(const FrameKind kind, KindOf(*event.frame));
  if (kind == FrameKind::kFailure) return FirstCause(DecodeFailure(*event.frame));
  if (std::find(due.begin(), due.end(), kind) == due.end())
    return base::DataLoss("{} sent a frame of kind {} out of turn", NameOf(event.rank),
                          static_cast<int>(kind));
  return std::pair(event.rank, std::move(*event.frame));
}

base::Status RankGroup::FirstCause(base::Status failure) {
  if (failure.code() != base::StatusCode::kUnavailable) return failure;
  const auto deadline = std::chrono::steady_clock::now() + kOthersEndWithin;
  std::unique_lock lock(mutex_);
  // Every rank fails at most and ends; of this one the failure is out already.
  const size_t most = 2 * ranks_.size() - 1;
  size_t seen = 0;
  do {
    for (; seen < events_.size(); ++seen) {
      const Event& event = events_[seen];
      if (!event.frame.ok()) continue;
      const auto kind = KindOf(*event.frame);
      if (!kind.ok() || *kind != FrameKind::kFailure) continue;
      base::Status other = DecodeFailure(*event.frame);
      if (other.code() != base::StatusCode::kUnavailable) return other;
    }
  } while (seen < most &&
           arrived_.wait_until(lock, deadline, [&] { return events_.size() > seen; }));
  return failure;
}

base::Status RankGroup::RankFailure(std::optional<size_t> rank,
                                    const base::Status& channel_status) {
  failed_ = true;
  // The monitor has said all.
  if (channel_status.code() == base::StatusCode::kDeadlineExceeded) return channel_status;
  // When a rank dies its neighbours lose their links and end as well, and any of them may be heard
  // of first. So wait a moment for the others: a failure that a rank could still report says most;
  // else the one that did not end by itself is the cause.
  std::vector<size_t> ended;
  if (rank) ended.push_back(*rank);
  const auto deadline = std::chrono::steady_clock::now() + kOthersEndWithin;
  std::unique_lock lock(mutex_);
  do {
    for (; !events_.empty(); events_.pop_front()) {
      const Event& event = events_.front();
      if (!event.frame.ok()) {
        ended.push_back(event.rank);
      } else if (const auto kind = KindOf(*event.frame);
                 kind.ok() && *kind == FrameKind::kFailure) {
        return DecodeFailure(*event.frame);
      }
    }
  } while (ended.size() < ranks_.size() &&
           arrived_.wait_until(lock, deadline, [this] { return !events_.empty(); }));
  lock.unlock();
  for (const size_t candidate : ended) {
    const std::string cause = ranks_[candidate]->DescribeEnd();
    if (!cause.empty()) return base::Unavailable("{} is gone: {}", NameOf(candidate), cause);
  }
  for (const size_t candidate : ended) {
    const std::string cause = ranks_[candidate]->DescribeLoss();
    if (!cause.empty()) return base::Unavailable("{} is lost: {}", NameOf(candidate), cause);
  }
  return channel_status.WithContext(ended.empty()
                                        ? "a plan cannot be given to the stages"
                                        : fmt::format("{} is gone", NameOf(ended.front())));
}

}  // namespace

base::Result<std::unique_ptr<StageGroup>> StageGroup::BringUp(
    std::vector<std::unique_ptr<RankHandle>> ranks, const std::vector<RankConfig>& configs,
    const CapacityOptions& capacity, const Progress& progress) {
  LONGSPAN_CHECK(!ranks.empty() && ranks.size() == configs.size() &&
                     configs.size() == static_cast<size_t>(configs[0].mesh.ranks()),
                 "{} ranks, {} configurations", ranks.size(), configs.size());
  auto group = std::make_unique<RankGroup>(std::move(ranks), configs[0]);
  LONGSPAN_RETURN_IF_ERROR(group->BringUpRanks(configs, capacity, progress));
  return std::unique_ptr<StageGroup>(std::move(group));
}

}  // namespace longspan::runtime
