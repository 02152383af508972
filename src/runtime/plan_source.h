// Where a rank's plans come from.
#pragma once

#include <mutex>
#include <thread>

#include "base/result.h"
#include "runtime/rank_config.h"
#include "runtime/rank_links.h"
#include "runtime/wire.h"

namespace longspan::runtime {

// The leader's plans for a rank, in order: those of the step log of its node, or where the rank
// reads no log those that come over its own channel. With a log a thread, which sleeps, watches the
// channel meanwhile: it notices a leader that is gone or silent, and writes plans that come there
// into the log of a node whose leader is on another host (links.relay).
class PlanSource {
 public:
  // `links` must outlive it.
  PlanSource(const RankConfig& config, const RankLinks& links);
  // After a Next the links must be closed by now.
  ~PlanSource();
  PlanSource(const PlanSource&) = delete;
  PlanSource& operator=(const PlanSource&) = delete;

  // Waits for the next plan's frame. Unavailable when the leader or the log has closed or the
  // leader gives no sign of life: this epoch is over. DataLoss when something else than plans came.
  // One thread calls it.
  base::Result<Frame> Next();

 private:
  base::Status StartWatch();
  void Watch();
  base::Status WatchLeader();

  const RankConfig config_;
  const RankLinks& links_;
  std::mutex mutex_;
  base::Status end_;  // of the leader's channel, once it has ended
  std::thread watch_;
};

}  // namespace longspan::runtime
