// The groups in which a rank works with the others of its stage.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/rank_group.h"
#include "model/stage_ranks.h"
#include "plan/exchange_volume.h"
#include "runtime/beat.h"
#include "runtime/rank_config.h"
#include "runtime/rank_links.h"
#include "tensor/execution_context.h"

namespace longspan::runtime {

// The collective steps of a rank's blocks, and what came of them. Used by one thread, but for the
// closing of the links.
class RankGroups : public model::StageRanks {
 public:
  // `links` must outlive it.
  RankGroups(const RankConfig& config, const RankLinks& links);

  // From here on all buffers are in the memory of the queue's device, but those of TellExperts. All
  // ranks of the stage do so at once. Unimplemented where the links have nothing to do it with.
  base::Status UseDevice(const RankConfig& config, const RankLinks& links, tensor::Queue& queue);

  // Whether the collective steps of a layer may be recorded and repeated.
  bool repeatable() const;

  // The ranks that divide heads and columns among themselves; null where there is one.
  comm::RankGroup* tensor_group() const { return tensor_group_.get(); }

  // The ranks that divide the rows of a step among themselves; null where there is one.
  comm::RankGroup* context_group() const { return context_group_.get(); }

  // The ranks that divide the experts among themselves; null where there is one.
  comm::RankGroup* expert_group() const { return expert_group_.get(); }

  bool ok() const override { return status_.ok(); }
  void SumOverTensorRanks(const tensor::View& x) override;
  void StartGather(const tensor::View& x, std::span<const int64_t> counts) override;
  void StartExchange(const tensor::View& x, std::span<const int64_t> outgoing,
                     const tensor::View& y, std::span<const int64_t> incoming) override;
  void FinishGathers() override;
  void ExchangeWithExperts(std::span<const std::span<const std::byte>> outgoing,
                           std::span<const std::span<std::byte>> incoming) override;
  void TellExperts(std::span<const std::span<const std::byte>> outgoing,
                   std::span<const std::span<std::byte>> incoming) override;
  bool AwaitExperts() override;

  // Runs a wait for others: it is told to the watch as such and counted. A failure closes all
  // groups: so it reaches also those that have no link with the rank where it began.
  base::Status Wait(comm::Collective collective);

  // The first failure of the above; none of the collective steps after it has done anything.
  const base::Status& status() const { return status_; }
  // Nanoseconds spent waiting since the last call.
  int64_t TakeWaited();
  // What has come from other ranks since the last call.
  plan::AxisBytes TakeReceived();

  void set_watch(ComputeWatch* watch) { watch_ = watch; }

 private:
  void Close();

  std::unique_ptr<comm::RankGroup> tensor_group_;
  std::unique_ptr<comm::RankGroup> context_group_;
  std::unique_ptr<comm::RankGroup> expert_group_;
  std::unique_ptr<comm::RankGroup> expert_host_group_;  // null where expert_group_ is one
  std::vector<comm::Collective> gathers_;               // under way
  comm::Collective expert_exchange_;                    // under way
  base::Status status_;
  int64_t waited_ = 0;
  plan::AxisBytes told_;  // by TakeReceived
  ComputeWatch* watch_ = nullptr;
};

}  // namespace longspan::runtime
