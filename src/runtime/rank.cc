#include "runtime/rank.h"

#include <chrono>
#include <memory>

#include "runtime/plan_intake.h"
#include "runtime/stage.h"
#include "runtime/wire.h"

namespace longspan::runtime {
namespace {

// Large models load for minutes: the leader hears of it at most so often.
constexpr std::chrono::milliseconds kLoadingReportEvery(100);

base::Status ApplyPlans(const RankConfig& config, const RankLinks& links, Stage& stage,
                        int64_t pages) {
  PlanIntake intake(config, pages, links, stage.residual_slots());
  while (true) {
    auto step = intake.Next();
    if (!step.ok()) return step.status();
    LONGSPAN_ASSIGN_OR_RETURN(const auto result, stage.Compute(*step));
    LONGSPAN_RETURN_IF_ERROR(links.leader->Send(EncodeResult(result)));
  }
}

base::Status BringUpAndRun(const RankLinks& links, const BackendFinder& find_backend) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto configure, links.leader->Receive());
  LONGSPAN_ASSIGN_OR_RETURN(const RankConfig config, DecodeConfigure(configure));
  LONGSPAN_ASSIGN_OR_RETURN(const ops::Backend* backend, find_backend(config.backend));
  auto reported = base::SteadyClock().Now();
  const auto report = [&](double share) {
    const auto now = base::SteadyClock().Now();
    if (now - reported < kLoadingReportEvery) return;
    reported = now;
    // A leader that is gone shows at the next step that needs it.
    (void)links.leader->Send(EncodeLoading(share));
  };
  LONGSPAN_ASSIGN_OR_RETURN(const auto stage, Stage::Load(config, *backend, links, report));
  LONGSPAN_RETURN_IF_ERROR(links.leader->Send(EncodeReady(stage->ready())));
  LONGSPAN_ASSIGN_OR_RETURN(const auto allocate, links.leader->Receive());
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t pages, DecodeAllocate(allocate));
  LONGSPAN_RETURN_IF_ERROR(stage->AllocateKv(pages));
  LONGSPAN_RETURN_IF_ERROR(links.leader->Send(EncodeAllocated()));
  return ApplyPlans(config, links, *stage, pages);
}

}  // namespace

base::Status RunRank(const RankLinks& links, const BackendFinder& find_backend) {
  base::Status status = BringUpAndRun(links, find_backend);
  // The leader closes its channel to end a rank.
  if (status.code() == base::StatusCode::kUnavailable) status = base::OkStatus();
  if (!status.ok()) (void)links.leader->Send(EncodeFailure(status));
  links.Close();
  return status;
}

}  // namespace longspan::runtime
