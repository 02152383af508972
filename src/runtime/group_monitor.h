// The leader's watch over the ranks of a group.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/channel.h"
#include "runtime/beat.h"
#include "runtime/rank_config.h"

namespace longspan::runtime {

// Beats to the ranks and notices what their connections do not tell: a rank that gives no sign of
// life for the peer timeout, a plan that computes longer than the watchdog allows, and plans in
// flight of which no rank reports anything for both times together (a message was lost). Members
// may be called from any thread.
class GroupMonitor {
 public:
  // Told once, with a sentence: the group is of no use any more.
  using OnLost = std::function<void(size_t rank, base::Status status)>;

  // The times and the epoch are those of `config`. `ranks` must outlive it. std::system_error where
  // no thread can be had.
  GroupMonitor(const RankConfig& config, const std::vector<comm::Channel*>& ranks, OnLost on_lost);

  // The rank reads its channel now: it gets beats.
  void OnReady(size_t rank);
  // A frame of any kind has come from the rank, or its connection has ended: which is told
  // elsewhere.
  void OnSign(size_t rank);
  void OnEnd(size_t rank);
  void OnBeat(size_t rank, const Beat& beat);
  // A plan goes to all ranks; a rank reports one.
  void OnSubmit();
  void OnResult();

 private:
  struct Rank {
    comm::Channel* channel = nullptr;
    bool ready = false;
    bool ended = false;
    int64_t silent_turns = 0;
    Beat beat;
  };

  static std::vector<Rank> WatchAll(const std::vector<comm::Channel*>& ranks);
  void Turn();
  base::Status Check(size_t rank);
  base::Status CheckProgress();

  std::string NameOf(size_t rank) const { return spec::RankName(mesh_, static_cast<int>(rank)); }

  const plan::Epoch epoch_;
  const spec::Mesh mesh_;
  const std::chrono::milliseconds every_;
  const std::chrono::milliseconds peer_timeout_;
  const std::chrono::milliseconds watchdog_timeout_;
  const OnLost on_lost_;
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  bool told_ = false;
  int64_t unreported_ = 0;  // plans times ranks
  int64_t turns_without_result_ = 0;
  Periodic periodic_;  // the last member: its thread uses the others
};

}  // namespace longspan::runtime
