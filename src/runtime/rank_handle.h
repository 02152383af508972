// A rank as the leader sees it.
#pragma once

#include <memory>
#include <string>

#include "comm/channel.h"
#include "runtime/rank.h"
#include "runtime/rank_links.h"
#include "runtime/wire.h"

namespace longspan::runtime {

// Destroying it ends the rank and waits for that, a few seconds at most.
class RankHandle {
 public:
  virtual ~RankHandle() = default;

  // The leader's end of the control channel.
  virtual comm::Channel& channel() = 0;

  // Gives the rank a plan, in the form of EncodePlan. Ranks of one node may share a log, in which
  // it is written once (runtime/rank_log.h); it is still given to each of them, in order. Never
  // waits. An error says that the rank, or one that shares the log, is lost.
  virtual base::Status SendPlan(const Frame& plan) { return channel().Send(plan); }

  // Closes the channel, which tells the rank to end, and does not wait for that: ranks that are
  // told together end together. The destructor does it as well.
  virtual void RequestEnd() = 0;

  // Ends a rank that is of no use any more, without waiting for what it does: a process is killed.
  virtual void Kill() { RequestEnd(); }

  // How the rank ended, once its channel has: "was killed by signal 9". Empty where it ended in
  // order or its end is not known within a moment.
  virtual std::string DescribeEnd() = 0;

  // The same for a rank whose end cannot be seen from here, where no other one explains the loss:
  // "its process on node 1 or the connection to it is gone". Empty for others.
  virtual std::string DescribeLoss() { return {}; }
};

// A rank as a thread of this process. `channel` is connected to links.leader.
std::unique_ptr<RankHandle> StartRankThread(std::unique_ptr<comm::Channel> channel, RankLinks links,
                                            BackendFinder find_backend);

}  // namespace longspan::runtime
