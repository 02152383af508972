// One rank's share of the model, its memory, and how it computes a step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/weight_source.h"
#include "comm/transfer.h"
#include "model/stage_model.h"
#include "ops/backend.h"
#include "plan/step_plan.h"
#include "plan/step_result.h"
#include "runtime/beat.h"
#include "runtime/gather_tables.h"
#include "runtime/kv_cache.h"
#include "runtime/rank_config.h"
#include "runtime/rank_groups.h"
#include "runtime/rank_links.h"
#include "runtime/residual_slots.h"
#include "runtime/sampler.h"
#include "runtime/step_repeater.h"
#include "runtime/step_tables.h"
#include "runtime/step_timer.h"
#include "runtime/token_feed.h"

namespace longspan::runtime {

// A plan with its tables, as it passes through the stage once or, with looped stages, several
// times.
struct PlanWork {
  plan::StepPlan plan;
  HostTables tables;
  plan::IntakeTiming intake;  // but for the posting of its input
  plan::StepResult result;    // of the loops that are computed; the compute thread's
};

// One loop of a plan, whose input is on its way.
struct PreparedStep {
  std::shared_ptr<PlanWork> work;
  int loop = 0;
  int slot = 0;             // of the residual ring
  comm::Transfer received;  // of the residual stream from the stage before
  plan::IntakeTiming intake;
  int64_t awaited = 0;  // since when the compute thread had nothing else to do
};

// The number of the message that carries a plan's residual stream into a stage in a loop.
constexpr uint64_t ResidualMessage(plan::PlanNumber plan, int loop, int loops) {
  return plan.value * static_cast<uint64_t>(loops) + static_cast<uint64_t>(loop);
}

// Device memory, weights and caches of one rank. Made and used by one thread, but for the residual
// ring.
class Stage {
 public:
  // Loads the weights that the rank owns and takes all memory but the KV cache. `links` must
  // outlive it.
  static base::Result<std::unique_ptr<Stage>> Load(const RankConfig& config,
                                                   const ops::Backend& backend,
                                                   const RankLinks& links,
                                                   const model::StageModel::Progress& progress);

  const RankReady& ready() const { return ready_; }
  ResidualSlots& residual_slots() { return *residual_slots_; }

  // Where Compute tells what it computes. `watch` must outlive the stage.
  void set_watch(ComputeWatch* watch) {
    watch_ = watch;
    groups_.set_watch(watch);
  }

  base::Status AllocateKv(int64_t pages);

  // Computes a step and passes its output on: the residual stream to the next stage, or the sampled
  // tokens to the first one. The result, after the plan's last loop, goes to the leader; its times
  // are those of all loops together.
  base::Result<std::optional<plan::StepResult>> Compute(const PreparedStep& prepared);

 private:
  Stage(const RankConfig& config, const ops::Backend& backend, const RankLinks& links)
      : config_(config),
        backend_(backend),
        links_(links),
        groups_(config, links),
        token_feed_(links.tokens.get()) {}

  bool deterministic() const { return config_.deterministic || backend_.always_deterministic(); }
  base::Status TakeMemory();
  base::Status TakeTables();
  // As StepTimer::Kernels, for what may wait for other ranks of the stage in between.
  template <typename Function>
  base::Status KernelsAndWaits(StepTimer& timer, const Function& function) {
    base::Status status = timer.Kernels(function);
    timer.MoveToWait(groups_.TakeWaited());
    return status.ok() ? groups_.status() : status;
  }
  base::Result<model::Step> BeginStep(const PlanWork& work);
  // Whether the ops of a step's layers depend on nothing but RepeatKey: steps of decoding rows on a
  // device that reads all else from the tables.
  bool IsRepeatable(const PlanWork& work) const;
  uint64_t RepeatKey(const PreparedStep& prepared) const;
  base::Status EmbedTokens(const model::Step& step, const PlanWork& work, StepTimer& timer,
                           const tensor::View& residual);
  base::Status RunLayers(const model::Step& step, const PreparedStep& prepared,
                         const tensor::View& residual);
  comm::Transfer SendOn(const PreparedStep& prepared);
  // Of the rows that this rank has, if no other one does.
  base::Status CollectHidden(PlanWork& work, int depth, const tensor::ConstView& residual);
  base::Status Sample(const model::Step& step, const tensor::View& residual, StepTimer& timer,
                      PlanWork& work);
  base::Status PassTokens(const plan::StepPlan& plan, const plan::StepResult& result);

  RankConfig config_;
  const ops::Backend& backend_;
  const RankLinks& links_;
  std::unique_ptr<tensor::Queue> queue_;
  RankGroups groups_;  // may use the queue to its end
  RankReady ready_;
  spec::ModelSpec whole_model_;
  spec::ModelSpec share_;  // what tensor parallelism leaves of it to this rank

  std::optional<StepRepeater> repeater_;
  std::unique_ptr<model::StageModel> model_;
  tensor::Workspace workspace_;
  std::unique_ptr<ResidualSlots> residual_slots_;
  std::optional<DeviceTables> device_tables_;
  std::optional<GatherTables> gather_tables_;  // of several context-parallel ranks
  std::optional<KvCache> kv_cache_;
  tensor::Buffer embedding_rows_;
  tensor::Buffer cosines_;
  tensor::Buffer sines_;
  std::optional<tensor::ExecutionContext> context_;
  std::optional<Sampler> sampler_;
  TokenFeed token_feed_;
  int64_t last_end_ = 0;    // of the last step; 0 before the first
  int64_t last_input_ = 0;  // when the last residual stream was there
  ComputeWatch* watch_ = nullptr;
};

}  // namespace longspan::runtime
