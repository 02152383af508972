#include "runtime/group_monitor.h"

#include <utility>

namespace longspan::runtime {
namespace {

double Seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

GroupMonitor::GroupMonitor(const RankConfig& config, const std::vector<comm::Channel*>& ranks,
                           OnLost on_lost)
    : epoch_(config.epoch),
      mesh_(config.mesh),
      every_(config.beat_every_ms),
      peer_timeout_(config.peer_timeout_ms),
      watchdog_timeout_(config.watchdog_timeout_ms),
      on_lost_(std::move(on_lost)),
      ranks_(WatchAll(ranks)),
      periodic_(every_, [this] { Turn(); }) {}

std::vector<GroupMonitor::Rank> GroupMonitor::WatchAll(const std::vector<comm::Channel*>& ranks) {
  std::vector<Rank> watched;
  for (comm::Channel* channel : ranks) watched.push_back({.channel = channel});
  return watched;
}

void GroupMonitor::OnReady(size_t rank) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].ready = true;
}

void GroupMonitor::OnSign(size_t rank) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].silent_turns = 0;
}

void GroupMonitor::OnEnd(size_t rank) {
  const std::lock_guard lock(mutex_);
  ranks_[rank].ended = true;
}

void GroupMonitor::OnBeat(size_t rank, const Beat& beat) {
  const std::lock_guard lock(mutex_);
  if (beat.epoch == epoch_) ranks_[rank].beat = beat;
}

void GroupMonitor::OnSubmit() {
  const std::lock_guard lock(mutex_);
  if (unreported_ == 0) turns_without_result_ = 0;
  unreported_ += static_cast<int64_t>(ranks_.size());
}

void GroupMonitor::OnResult() {
  const std::lock_guard lock(mutex_);
  --unreported_;
  turns_without_result_ = 0;
}

void GroupMonitor::Turn() {
  const Frame beat = EncodeBeat({.epoch = epoch_});
  std::unique_lock lock(mutex_);
  base::Status status;
  size_t lost = 0;
  for (size_t rank = 0; rank < ranks_.size() && !told_; ++rank) {
    if (ranks_[rank].ended) continue;
    // A rank that cannot take a beat is found by its silence.
    if (ranks_[rank].ready) (void)ranks_[rank].channel->Send(beat);
    if (!status.ok()) continue;
    status = Check(rank);
    lost = rank;
  }
  if (status.ok() && !told_) status = CheckProgress();
  if (status.ok() || told_) return;
  told_ = true;
  lock.unlock();
  on_lost_(lost, std::move(status));
}

base::Status GroupMonitor::Check(size_t rank) {
  Rank& watched = ranks_[rank];
  if (++watched.silent_turns * every_ > peer_timeout_)
    return base::DeadlineExceeded(
        "{} is lost: it has given no sign of life for {:.1f} s (--peer-timeout)", NameOf(rank),
        Seconds(peer_timeout_));
  if (std::chrono::milliseconds(watched.beat.computing_ms) >= watchdog_timeout_)
    return base::DeadlineExceeded(
        "{} is stalled: plan {} has been computing for {:.1f} s (--watchdog-timeout)", NameOf(rank),
        watched.beat.computing.value, Seconds(watchdog_timeout_));
  return base::OkStatus();
}

// A computing rank is found by its beats, as long as it computes.
base::Status GroupMonitor::CheckProgress() {
  if (unreported_ == 0) return base::OkStatus();
  if (++turns_without_result_ * every_ <= watchdog_timeout_ + peer_timeout_)
    return base::OkStatus();
  return base::DeadlineExceeded(
      "the stages are stalled: plans are in flight, and no stage has reported one for {:.1f} s "
      "(--watchdog-timeout and --peer-timeout)",
      Seconds(watchdog_timeout_ + peer_timeout_));
}

}  // namespace longspan::runtime
