// Signs of life between the leader and the ranks.
//
// Both sides beat every half second from a thread that does nothing else. Time without a sign is
// counted in turns of the side that waits, not read from a clock: a program that is stopped and
// continued as a whole (a terminal's Ctrl-Z, a frozen container) finds nobody lost.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

#include "base/result.h"
#include "comm/channel.h"
#include "plan/ids.h"
#include "runtime/rank_config.h"
#include "runtime/wire.h"

namespace longspan::runtime {

struct Beat {
  plan::Epoch epoch;
  // Of a rank: the plan that its kernels work on, 0 for none, and for how long they have.
  plan::PlanNumber computing;
  int64_t computing_ms = 0;
};

Frame EncodeBeat(const Beat& beat);
base::Result<Beat> DecodeBeat(std::span<const std::byte> frame);

// What a rank computes just now, told by its compute thread and read by its beats. Lock-free.
class ComputeWatch {
 public:
  // Computing from its construction to its end; waits for others do not belong inside.
  class Scope {
   public:
    Scope(ComputeWatch* watch, plan::PlanNumber plan) : watch_(watch) {
      if (watch_ != nullptr) watch_->plan_.store(plan.value, std::memory_order_relaxed);
    }
    ~Scope() {
      if (watch_ != nullptr) watch_->plan_.store(0, std::memory_order_relaxed);
    }
    Scope(const Scope&) = delete;

   private:
    ComputeWatch* watch_;
  };

  // Waiting for other ranks, within such a scope or not.
  class Pause {
   public:
    explicit Pause(ComputeWatch* watch) : watch_(watch) {
      if (watch_ != nullptr) plan_ = watch_->plan_.exchange(0, std::memory_order_relaxed);
    }
    ~Pause() {
      if (watch_ != nullptr) watch_->plan_.store(plan_, std::memory_order_relaxed);
    }
    Pause(const Pause&) = delete;

   private:
    ComputeWatch* watch_;
    uint64_t plan_ = 0;
  };

  plan::PlanNumber computing() const { return {plan_.load(std::memory_order_relaxed)}; }

 private:
  std::atomic<uint64_t> plan_ = 0;
};

// Calls a function every so often on a thread of its own, first after that time, until it is
// destroyed. A turn that comes late is not made up for.
class Periodic {
 public:
  Periodic(std::chrono::milliseconds every, std::function<void()> turn);
  ~Periodic();
  Periodic(const Periodic&) = delete;

 private:
  void Loop();

  std::chrono::milliseconds every_;
  std::function<void()> turn_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

// The beats of a rank. `leader` and `watch` must outlive it.
class RankBeats {
 public:
  RankBeats(const RankConfig& config, comm::Channel& leader, const ComputeWatch& watch);

 private:
  void Turn();

  plan::Epoch epoch_;
  std::chrono::milliseconds every_;
  comm::Channel& leader_;
  const ComputeWatch& watch_;
  plan::PlanNumber last_;  // computing at the last turn
  int64_t turns_ = 0;      // for so many turns
  Periodic periodic_;      // the last member: its thread uses the others
};

// The leader's next frame that is not a beat. Unavailable when the leader has closed the channel or
// given no sign of life for the configured time: either way this epoch is over.
base::Result<Frame> ReceiveFromLeader(comm::Channel& leader, const RankConfig& config);

}  // namespace longspan::runtime
