#include "tests/engine/engine_harness.h"

#include <unordered_map>

#include <fmt/format.h>

#include "apps/wiring.h"
#include "base/check.h"
#include "ops/counter_random.h"

namespace longspan::testing {
namespace {

class ScoreSink : public engine::OutputSink {
 public:
  void OnScore(plan::SequenceId, engine::ScoreOutput score) override {
    scores.positions.push_back(score.position);
    scores.logits.push_back(std::move(score.logits));
    scores.next_logprobs.push_back(score.next_logprob);
  }
  void OnHidden(plan::SequenceId, int32_t depth, std::vector<float> values) override {
    if (scores.hidden.size() <= static_cast<size_t>(depth)) scores.hidden.resize(depth + 1);
    LONGSPAN_CHECK(scores.hidden[depth].empty(), "depth {} is reported twice", depth);
    scores.hidden[depth] = std::move(values);
  }
  void OnFinish(plan::SequenceId, engine::FinishReason, const engine::FinishInfo& info) override {
    scores.cached_tokens = info.cached_tokens;
  }

  Scores scores;
};

class GenerateSink : public engine::OutputSink {
 public:
  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput& token) override {
    Generated& output = outputs.at(index.at(sequence));
    output.ids.push_back(token.token);
    output.logprobs.push_back(token.logprob);
    return true;
  }
  void OnFinish(plan::SequenceId sequence, engine::FinishReason reason,
                const engine::FinishInfo& info) override {
    outputs.at(index.at(sequence)).reason = reason;
    outputs.at(index.at(sequence)).cached_tokens = info.cached_tokens;
  }

  std::vector<Generated> outputs;
  std::unordered_map<plan::SequenceId, size_t> index;
};

}  // namespace

std::string Layout::ToString() const {
  return fmt::format("{} {} stages={}x{} cp={} {} tp={} ep={} chunk={} threads={}", backend, dtype,
                     stages, virtual_stages, context_ranks, token_split, tensor_ranks, expert_ranks,
                     chunk_tokens, threads);
}

std::filesystem::path SourceFolder() {
  const char* moved = std::getenv("LONGSPAN_SOURCE");
  return moved == nullptr ? LONGSPAN_SOURCE_DIR : moved;
}

bool HasBackend(const std::string& name) { return apps::FindBackend(name).ok(); }

std::filesystem::path FixturesFolder() {
  const char* named = std::getenv("LONGSPAN_FIXTURES");
  const std::filesystem::path root = SourceFolder();
  return root / (named == nullptr ? "../shared/fixtures" : named);
}

bool IsFixture(const std::string& name) { return name.starts_with("tiny-deepseek-"); }

std::filesystem::path ModelFolder(const std::string& name) {
  if (IsFixture(name)) return FixturesFolder() / "models" / name;
  const std::filesystem::path root = SourceFolder();
  return name == "tiny-qwen3-moe" ? root / "models" / name
                                  : root / "tests" / "data" / "models" / name;
}

std::unique_ptr<engine::Engine> Start(const std::filesystem::path& model, const Layout& layout) {
  apps::EngineFlags flags;
  flags.model_path = model.string();
  flags.backend = layout.backend;
  flags.dtype = layout.dtype;
  flags.kv_cache_dtype = layout.kv_cache_dtype;
  flags.mesh.pp = layout.stages;
  flags.mesh.tp = layout.tensor_ranks;
  flags.mesh.ep = layout.expert_ranks;
  flags.mesh.cp = layout.context_ranks;
  flags.cp_strategy = layout.token_split;
  flags.kv_placement = layout.kv_placement;
  flags.gpu_id_step = 0;  // one GPU is enough for tests
  flags.virtual_stages = layout.virtual_stages;
  flags.chunked_prefill_size = layout.chunk_tokens;
  flags.chunk_policy = "fixed";
  flags.cost_cache = "off";
  flags.threads = layout.threads;
  flags.page_size = layout.page_size;
  flags.load_format = layout.load_format;
  flags.deterministic = layout.deterministic;
  flags.max_total_tokens = layout.max_total_tokens;
  flags.max_running_requests = layout.max_running;
  flags.max_queued_requests = layout.max_queued;
  flags.disable_radix_cache = !layout.reuse_prefixes;
  flags.watchdog_timeout = 3600;  // slow under the sanitizers, and no test of stalls starts here
  const auto setup = apps::ResolveSetup(flags);
  LONGSPAN_CHECK(setup.ok(), "{}", setup.status().message());
  auto engine = apps::StartEngine(flags, *setup, apps::StagePlacement::kThreads);
  LONGSPAN_CHECK(engine.ok(), "{}", engine.status().message());
  return std::move(engine).value();
}

Scores Score(engine::Engine& engine, const std::vector<int32_t>& ids,
             std::vector<int64_t> positions) {
  ScoreSink sink;
  const auto id = engine.Submit({.prompt = ids,
                                 .max_tokens = 0,
                                 .score_positions = std::move(positions),
                                 .return_logits = true,
                                 .return_hidden = true},
                                &sink);
  LONGSPAN_CHECK(id.ok(), "{}", id.status().message());
  const auto status = engine.RunUntilIdle();
  LONGSPAN_CHECK(status.ok(), "{}", status.message());
  return std::move(sink.scores);
}

std::vector<Generated> Generate(engine::Engine& engine, std::vector<engine::Request> requests) {
  GenerateSink sink;
  sink.outputs.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.Submit(std::move(requests[i]), &sink);
    LONGSPAN_CHECK(id.ok(), "{}", id.status().message());
    sink.index.emplace(*id, i);
  }
  const auto status = engine.RunUntilIdle();
  LONGSPAN_CHECK(status.ok(), "{}", status.message());
  return std::move(sink.outputs);
}

Generated Generate(engine::Engine& engine, engine::Request request) {
  std::vector<engine::Request> requests;
  requests.push_back(std::move(request));
  return Generate(engine, std::move(requests)).front();
}

std::vector<int32_t> RandomIds(int64_t count, int vocab, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(
        static_cast<int32_t>(ops::CounterBits(seed, i, 0) % static_cast<uint64_t>(vocab)));
  return ids;
}

}  // namespace longspan::testing
