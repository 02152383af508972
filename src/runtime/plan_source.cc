#include "runtime/plan_source.h"

#include <system_error>

#include "runtime/beat.h"
#include "tensor/thread_pool.h"

namespace longspan::runtime {

PlanSource::PlanSource(const RankConfig& config, const RankLinks& links)
    : config_(config), links_(links) {}

PlanSource::~PlanSource() {
  if (watch_.joinable()) watch_.join();
}

base::Result<Frame> PlanSource::Next() {
  if (links_.plans == nullptr) return ReceiveFromLeader(*links_.leader, config_);
  LONGSPAN_RETURN_IF_ERROR(StartWatch());
  auto frame = links_.plans->Receive();
  if (frame.ok()) return frame;
  const std::lock_guard lock(mutex_);
  return end_.ok() ? frame : end_;
}

base::Status PlanSource::StartWatch() {
  if (watch_.joinable()) return base::OkStatus();
  try {
    watch_ = std::thread([this] { Watch(); });
  } catch (const std::system_error& error) {
    return base::ResourceExhausted("a stage cannot start its threads: {}", error.code().message());
  }
  return base::OkStatus();
}

void PlanSource::Watch() {
  // Started by a compute thread that may be pinned.
  tensor::UnpinThisThread();
  const base::Status status = WatchLeader();
  {
    const std::lock_guard lock(mutex_);
    end_ = status;
  }
  links_.plans->Close();
}

base::Status PlanSource::WatchLeader() {
  while (true) {
    LONGSPAN_ASSIGN_OR_RETURN(const Frame frame, ReceiveFromLeader(*links_.leader, config_));
    LONGSPAN_ASSIGN_OR_RETURN(const FrameKind kind, KindOf(frame));
    if (kind != FrameKind::kPlan || links_.relay == nullptr)
      return base::DataLoss("the leader sent a frame of kind {} out of turn",
                            static_cast<int>(kind));
    LONGSPAN_RETURN_IF_ERROR(links_.relay->Append(frame));
  }
}

}  // namespace longspan::runtime
