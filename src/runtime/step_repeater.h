// Steps that are queued again with one call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "ops/backend.h"
#include "ops/step_recorder.h"
#include "plan/exchange_volume.h"
#include "runtime/rank_groups.h"

namespace longspan::runtime {

// A recorder of steps, and what the ranks of a stage exchange in them. Used by one thread.
class StepRepeater {
 public:
  // Where the backend records nothing, nothing can be repeated. All must outlive it.
  StepRepeater(const ops::Backend& backend, tensor::Queue& queue, RankGroups& groups)
      : groups_(&groups) {
    if (const auto* recording = dynamic_cast<const ops::RecordingBackend*>(&backend))
      recorder_ = recording->CreateRecorder(queue);
  }

  bool can_repeat() const { return recorder_ != nullptr && groups_->repeatable(); }

  // As StepRecorder::Run; gives what comes from other ranks in the step. What is repeated posts
  // nothing, and receives what it received before.
  plan::AxisBytes Run(uint64_t key, const std::function<void()>& calls) {
    const plan::AxisBytes before = groups_->TakeReceived();
    recorder_->Run(key, calls);
    const plan::AxisBytes posted = groups_->TakeReceived();
    if (known_.size() == kMostKeys && !known_.contains(key)) known_.clear();
    plan::AxisBytes& known = known_[key];
    if (posted != plan::AxisBytes()) known = posted;
    plan::AxisBytes all = before;
    return all += known;
  }

 private:
  static constexpr size_t kMostKeys = 4096;

  std::unique_ptr<ops::StepRecorder> recorder_;
  RankGroups* groups_;
  std::unordered_map<uint64_t, plan::AxisBytes> known_;  // by key
};

}  // namespace longspan::runtime
