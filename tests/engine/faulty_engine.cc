#include "tests/engine/faulty_engine.h"

#include "apps/wiring.h"
#include "comm/in_process/in_process.h"
#include "runtime/rank_handle.h"
#include "runtime/stage_group.h"

namespace longspan::testing {
namespace {

constexpr int kVocab = 320;
constexpr int64_t kContext = 2048;

std::vector<std::unique_ptr<runtime::RankHandle>> StartRanks(const Faults& faults,
                                                             const plan::PipelineShape& shape) {
  const int stages = shape.ranks;
  const auto wrap = [&](Line line, int stage, auto& end, auto create) {
    for (const auto& [place, plan] : faults)
      if (place.line == line && place.stage == stage) end = create(std::move(end), plan);
  };
  std::vector<runtime::RankLinks> links(stages);
  std::vector<std::unique_ptr<comm::Channel>> leaders(stages);
  for (int stage = 0; stage < stages; ++stage) {
    std::tie(leaders[stage], links[stage].leader) = comm::CreateInProcessChannelPair();
    wrap(Line::kPlans, stage, leaders[stage], comm::CreateFaultInjectingChannel);
    wrap(Line::kResults, stage, links[stage].leader, comm::CreateFaultInjectingChannel);
    if (stage == 0 && !shape.is_ring()) continue;
    const int before = (stage + stages - 1) % stages;
    std::tie(links[before].next, links[stage].previous) = comm::CreateInProcessLinkPair();
    wrap(Line::kResidual, before, links[before].next, comm::CreateFaultInjectingLink);
  }
  std::tie(links.back().tokens, links.front().tokens) = comm::CreateInProcessChannelPair();
  wrap(Line::kTokens, stages - 1, links.back().tokens, comm::CreateFaultInjectingChannel);
  std::vector<std::unique_ptr<runtime::RankHandle>> ranks;
  for (int stage = 0; stage < stages; ++stage)
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
    std::vector<plan::LayerRange> layers;
    for (int layer = 0; layer < options.shape.stages(); ++layer)
      layers.push_back({layer, layer + 1});
    std::vector<runtime::RankConfig> configs;
    for (int stage = 0; stage < options.shape.ranks; ++stage)
      configs.push_back({.model_dir = ModelFolder(options.model).string(),
                         .backend = "reference",
                         .epoch = epoch,
                         .stage = stage,
                         .stages = options.shape.ranks,
                         .ranges = plan::RangesOfRank(layers, options.shape.ranks, stage),
                         .max_rows = scheduler.chunk_tokens + scheduler.max_running,
                         .max_slices = 2 * scheduler.max_running,
                         .max_context = kContext,
                         .beat_every_ms = options.beat_every_ms,
                         .peer_timeout_ms = options.peer_timeout_ms,
                         .watchdog_timeout_ms = options.watchdog_timeout_ms});
    return runtime::StageGroup::BringUp(StartRanks(options.faults(epoch), options.shape), configs,
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

std::vector<std::vector<int32_t>> ExpectedOutputs(const char* model) {
  const auto engine = Start(ModelFolder(model), {});
  std::vector<std::vector<int32_t>> outputs;
  for (const Generated& output : Generate(*engine, FaultyRequests())) outputs.push_back(output.ids);
  return outputs;
}

}  // namespace longspan::testing
