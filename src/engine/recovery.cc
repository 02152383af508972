// What the engine does when its group of ranks is lost.
#include <utility>

#include "engine/engine.h"

namespace longspan::engine {
namespace {

// Lost, silent or spoilt: things that new processes do not inherit.
bool MayPass(const base::Status& cause) {
  return cause.code() == base::StatusCode::kUnavailable ||
         cause.code() == base::StatusCode::kDeadlineExceeded ||
         cause.code() == base::StatusCode::kDataLoss;
}

}  // namespace

base::Status Engine::Recover(base::Status cause) {
  const bool replaces = options_.most_restarts > 0;
  if (replaces && MayPass(cause) && scheduler_.idle()) {
    // Nothing waits for it: another one is brought up when something does.
    DropGroup();
    lost_ = std::move(cause);
    return base::OkStatus();
  }
  while (replaces && MayPass(cause)) {
    if (restarts_ == options_.most_restarts)
      return {cause.code(),
              fmt::format("the stages were lost again after {} restarts without progress: {}",
                          restarts_, cause.message())};
    ++restarts_;
    base::Status restarted = Restart(cause);
    if (restarted.ok()) return restarted;
    cause = std::move(restarted);
  }
  return cause;
}

base::Status Engine::Restart(const base::Status& cause) {
  const size_t sequences = scheduler_.Ids().size();
  log_.warn("{}; the stages are started again, {} sequence{} to be computed", cause.message(),
            sequences, sequences == 1 ? " is" : "s are");
  DropGroup();
  ++epoch_.value;
  LONGSPAN_ASSIGN_OR_RETURN(auto group, options_.restart(epoch_));
  if (group->info().pages < info_.pages)
    return base::ResourceExhausted(
        "the restarted stages have memory for {} pages of KV cache, {} are needed: free memory",
        group->info().pages, info_.pages);
  group_ = std::move(group);
  sender_.emplace(*group_);
  group_is_warm_ = false;
  lost_ = base::OkStatus();
  return base::OkStatus();
}

void Engine::DropGroup() {
  sender_.reset();
  group_.reset();
  in_flight_.clear();
  scheduler_.RecomputeAll();
}

}  // namespace longspan::engine
