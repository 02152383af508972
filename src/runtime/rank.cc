#include "runtime/rank.h"

#include <chrono>
#include <memory>
#include <new>
#include <system_error>

#include "runtime/beat.h"
#include "runtime/out_of_memory.h"
#include "runtime/plan_intake.h"
#include "runtime/stage.h"
#include "runtime/wire.h"

namespace longspan::runtime {
namespace {

// Large models load for minutes: the leader hears of it at most so often.
constexpr std::chrono::milliseconds kLoadingReportEvery(100);

// Exceptions come from the standard library only.
template <typename Function>
base::Status WithoutExceptions(const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::system_error& error) {
    return base::ResourceExhausted("a stage cannot start its threads: {}", error.code().message());
  }
}

// Unavailable is the regular end: the leader has closed its channel, or a neighbour has gone and
// the leader hears of that from elsewhere.
void TellLeader(const RankLinks& links, const base::Status& status) {
  if (status.ok() || status.code() == base::StatusCode::kUnavailable) return;
  (void)links.leader->Send(EncodeFailure(status));
}

base::Status ComputePlans(PlanIntake& intake, Stage& stage, comm::Channel& leader) {
  while (true) {
    auto step = intake.Next();
    if (!step.ok()) return step.status();
    LONGSPAN_ASSIGN_OR_RETURN(const auto result, stage.Compute(*step));
    if (result) LONGSPAN_RETURN_IF_ERROR(leader.Send(EncodeResult(*result)));
  }
}

base::Status ApplyPlans(const RankConfig& config, const RankLinks& links, Stage& stage,
                        int64_t pages) {
  PlanIntake intake(config, pages, links, stage.residual_slots());
  base::Status status =
      WithoutExceptions([&] { return ComputePlans(intake, stage, *links.leader); });
  // Now, since the end of the intake closes the channel.
  TellLeader(links, status);
  return status;
}

base::Result<RankConfig> ReceiveConfig(comm::Channel& leader, const RankHost& host) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto configure, leader.Receive());
  LONGSPAN_ASSIGN_OR_RETURN(RankConfig config, DecodeConfigure(configure));
  if (!host.model_dir.empty()) config.model_dir = host.model_dir;
  if (host.threads > 0) {
    config.threads = host.threads;
    config.cores = host.cores;
  }
  return config;
}

base::Status BringUpAndRun(RankLinks& links, const BackendFinder& find_backend,
                           const RankHost& host, const PeerConnector& connect_peers) {
  LONGSPAN_ASSIGN_OR_RETURN(const RankConfig config, ReceiveConfig(*links.leader, host));
  LONGSPAN_ASSIGN_OR_RETURN(const ops::Backend* backend, find_backend(config.backend));
  if (connect_peers) LONGSPAN_RETURN_IF_ERROR(connect_peers(config, links));
  ComputeWatch watch;
  const RankBeats beats(config, *links.leader, watch);
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
  stage->set_watch(&watch);
  LONGSPAN_ASSIGN_OR_RETURN(const auto allocate, ReceiveFromLeader(*links.leader, config));
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t pages, DecodeAllocate(allocate));
  LONGSPAN_RETURN_IF_ERROR(stage->AllocateKv(pages));
  LONGSPAN_RETURN_IF_ERROR(links.leader->Send(EncodeAllocated()));
  return ApplyPlans(config, links, *stage, pages);
}

}  // namespace

base::Status RunRank(RankLinks& links, const BackendFinder& find_backend, const RankHost& host,
                     const PeerConnector& connect_peers) {
  const base::Status status =
      WithoutExceptions([&] { return BringUpAndRun(links, find_backend, host, connect_peers); });
  TellLeader(links, status);
  links.Close();
  return status.code() == base::StatusCode::kUnavailable ? base::OkStatus() : status;
}

}  // namespace longspan::runtime
