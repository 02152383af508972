#include "tests/engine/faulty_engine.h"

#include "apps/wiring.h"
#include "comm/in_process/in_process.h"
#include "runtime/rank_handle.h"
#include "runtime/stage_group.h"

namespace longspan::testing {
namespace {

constexpr int kVocab = 320;
constexpr int64_t kContext = 2048;

std::vector<std::unique_ptr<runtime::RankHandle>> StartRanks(const Faults& faults) {
  const auto wrap = [&](Line line, int stage, auto& end, auto create) {
    for (const auto& [place, plan] : faults)
      if (place.line == line && place.stage == stage) end = create(std::move(end), plan);
  };
  std::vector<runtime::RankLinks> links(kFaultyStages);
  std::vector<std::unique_ptr<comm::Channel>> leaders(kFaultyStages);
  for (int stage = 0; stage < kFaultyStages; ++stage) {
    std::tie(leaders[stage], links[stage].leader) = comm::CreateInProcessChannelPair();
    wrap(Line::kPlans, stage, leaders[stage], comm::CreateFaultInjectingChannel);
    wrap(Line::kResults, stage, links[stage].leader, comm::CreateFaultInjectingChannel);
    if (stage == 0) continue;
    std::tie(links[stage - 1].next, links[stage].previous) = comm::CreateInProcessLinkPair();
    wrap(Line::kResidual, stage - 1, links[stage - 1].next, comm::CreateFaultInjectingLink);
  }
  std::tie(links.back().tokens, links.front().tokens) = comm::CreateInProcessChannelPair();
  wrap(Line::kTokens, kFaultyStages - 1, links.back().tokens, comm::CreateFaultInjectingChannel);
  std::vector<std::unique_ptr<runtime::RankHandle>> ranks;
  for (int stage = 0; stage < kFaultyStages; ++stage)
    ranks.push_back(runtime::StartRankThread(std::move(leaders[stage]), std::move(links[stage]),
                                             apps::FindBackend));
  return ranks;
}

}  // namespace

std::vector<Place> AllPlaces() {
  std::vector<Place> places;
  for (int stage = 0; stage < kFaultyStages; ++stage) {
    places.push_back({Line::kPlans, stage});
    places.push_back({Line::kResults, stage});
    if (stage + 1 < kFaultyStages) places.push_back({Line::kResidual, stage});
  }
  places.push_back({Line::kTokens, kFaultyStages - 1});
  return places;
}

base::Result<std::unique_ptr<engine::Engine>> StartFaulty(const FaultyOptions& options) {
  const engine::SchedulerOptions scheduler = {.chunk_tokens = 16, .max_running = 8};
  const auto bring_up = [options, scheduler](plan::Epoch epoch) {
    std::vector<runtime::RankConfig> configs;
    for (int stage = 0; stage < kFaultyStages; ++stage)
      configs.push_back({.model_dir = ModelFolder(kFaultyModel).string(),
                         .backend = "reference",
                         .epoch = epoch,
                         .stage = stage,
                         .stages = kFaultyStages,
                         .ranges = {{stage, stage + 1}},
                         .max_rows = scheduler.chunk_tokens + scheduler.max_running,
                         .max_slices = 2 * scheduler.max_running,
                         .max_context = kContext,
                         .beat_every_ms = options.beat_every_ms,
                         .peer_timeout_ms = options.peer_timeout_ms,
                         .watchdog_timeout_ms = options.watchdog_timeout_ms});
    return runtime::StageGroup::BringUp(StartRanks(options.faults(epoch)), configs,
                                        {.max_total_tokens = 4096});
  };
  LONGSPAN_ASSIGN_OR_RETURN(auto group, bring_up({0}));
  return std::make_unique<engine::Engine>(
      std::move(group), engine::EngineOptions{.scheduler = scheduler,
                                              .vocab_size = kVocab,
                                              .context_length = kContext,
                                              .restart = bring_up,
                                              .most_restarts = options.replay ? 3 : 0});
}

std::vector<engine::Request> FaultyRequests() {
  std::vector<engine::Request> requests;
  for (int i = 0; i < 3; ++i)
    requests.push_back({.prompt = RandomIds(5 + 60 * i, kVocab, static_cast<uint64_t>(i)),
                        .max_tokens = 4 + i,
                        .ignore_end_tokens = true});
  return requests;
}

std::vector<std::vector<int32_t>> ExpectedOutputs() {
  const auto engine = Start(ModelFolder(kFaultyModel), {});
  std::vector<std::vector<int32_t>> outputs;
  for (const Generated& output : Generate(*engine, FaultyRequests())) outputs.push_back(output.ids);
  return outputs;
}

}  // namespace longspan::testing
