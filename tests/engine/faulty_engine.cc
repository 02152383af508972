#include "tests/engine/faulty_engine.h"

#include "apps/wiring.h"
#include "runtime/rank_handle.h"
#include "runtime/stage_group.h"

namespace longspan::testing {
namespace {

constexpr int kVocab = 320;
constexpr int64_t kContext = 2048;

std::vector<std::unique_ptr<runtime::RankHandle>> StartRanks(const Faults& faults,
                                                             const apps::RankLayout& layout) {
  auto [links, leaders] = apps::ConnectInProcess(layout);
  for (const auto& [place, plan] : faults) {
    runtime::RankLinks& of_rank = links.at(static_cast<size_t>(place.rank));
    const auto spoil = [&, &with = plan](auto& end, auto create) {
      end = create(std::move(end), with);
    };
    switch (place.line) {
      case Line::kPlans:
        spoil(leaders.at(static_cast<size_t>(place.rank)), comm::CreateFaultInjectingChannel);
        break;
      case Line::kResults:
        spoil(of_rank.leader, comm::CreateFaultInjectingChannel);
        break;
      case Line::kResidual:
        spoil(of_rank.next, comm::CreateFaultInjectingLink);
        break;
      case Line::kTokens:
        spoil(of_rank.tokens, comm::CreateFaultInjectingChannel);
        break;
      case Line::kStagePeer:
        spoil(of_rank.stage_peers.front(), comm::CreateFaultInjectingLink);
        break;
    }
  }
  std::vector<std::unique_ptr<runtime::RankHandle>> ranks;
  for (size_t rank = 0; rank < links.size(); ++rank)
    ranks.push_back(runtime::StartRankThread(std::move(leaders[rank]), std::move(links[rank]),
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
  const engine::SchedulerOptions scheduler = {
      .chunk_tokens = 16, .max_running = 8, .chunk_policy = {.kind = options.chunks}};
  const auto bring_up = [options, scheduler](plan::Epoch epoch) {
    std::vector<plan::LayerRange> layers;
    for (int layer = 0; layer < options.shape.stages(); ++layer)
      layers.push_back({layer, layer + 1});
    const spec::Mesh mesh = {.pp = options.shape.ranks,
                             .cp = options.context_ranks,
                             .tp = options.tensor_ranks,
                             .ep = options.expert_ranks};
    std::vector<runtime::RankConfig> configs;
    for (int rank = 0; rank < mesh.ranks(); ++rank)
      configs.push_back({.model_dir = ModelFolder(options.model).string(),
                         .backend = "reference",
                         .epoch = epoch,
                         .mesh = mesh,
                         .rank = rank,
                         .kv_placement = options.kv_placement,
                         .ranges = plan::RangesOfRank(layers, mesh.pp, mesh.stage_of(rank)),
                         .max_rows = scheduler.chunk_tokens + scheduler.max_running,
                         .max_slices = 2 * scheduler.max_running,
                         .max_context = kContext,
                         .beat_every_ms = options.beat_every_ms,
                         .peer_timeout_ms = options.peer_timeout_ms,
                         .watchdog_timeout_ms = options.watchdog_timeout_ms});
    return runtime::StageGroup::BringUp(
        StartRanks(options.faults(epoch), {.mesh = mesh, .loops = options.shape.loops}), configs,
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
