#include "apps/bench_run.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/mix_bits.h"
#include "kv/page_pool.h"

namespace longspan::apps {
namespace {

// Waits for nothing but the first token.
class FirstTokenSink : public engine::OutputSink {
 public:
  void OnFinish(plan::SequenceId /*sequence*/, engine::FinishReason reason,
                const engine::FinishInfo& /*info*/) override {
    if (reason != engine::FinishReason::kAbort) ++finished_;
  }
  size_t finished() const { return finished_; }

 private:
  size_t finished_ = 0;
};

}  // namespace

std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab_size, uint64_t stream) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  uint64_t index = base::MixBits(stream + 1);
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(base::MixBits(++index) % static_cast<uint64_t>(vocab_size));
  return tokens;
}

base::Result<std::unique_ptr<engine::Engine>> StartBenchEngine(EngineFlags flags, EngineSetup setup,
                                                               const BenchLoad& load) {
  if (flags.nodes > 1) return base::Unimplemented("benches over several hosts are not built yet");
  flags.max_running_requests = load.sequences;
  flags.max_queued_requests = load.sequences;
  if (flags.cost_cache == "auto") flags.cost_cache = "off";  // as on the first run
  flags.disable_radix_cache = true;                          // what is measured is to be computed
  flags.max_total_tokens =
      load.sequences * kv::PagesFor(load.tokens, flags.page_size) * flags.page_size;
  setup.context_length = load.tokens;
  setup.synthetic_kv = load.synthetic_kv;
  return StartEngine(flags, setup);
}

engine::Request BenchRequest(const engine::Engine& engine, int64_t depth, int64_t prompt_tokens,
                             uint64_t stream) {
  return {.prompt = RandomTokens(depth + prompt_tokens, engine.limits().vocab_size, stream),
          .max_tokens = 1,
          .ignore_end_tokens = true,
          .synthetic_prefix = depth};
}

base::Result<PrefillRun> RunPrefill(engine::Engine& engine, std::vector<engine::Request> requests,
                                    const StepObserver& observer) {
  PrefillRun run{.report = PipelineReport(engine.group_info().ranks.size())};
  FirstTokenSink sink;
  engine.set_step_observer([&](const engine::StepRecord& step) {
    run.report.Add(step);
    if (observer) observer(step);
  });
  const size_t count = requests.size();
  const base::Clock& clock = base::SteadyClock();
  const auto begin = clock.Now();
  base::Status status;
  for (engine::Request& request : requests) {
    if (status.ok()) status = engine.Submit(std::move(request), &sink).status();
  }
  if (status.ok()) status = engine.RunUntilIdle();
  run.seconds = base::Seconds(clock.Now() - begin);
  engine.set_step_observer({});
  LONGSPAN_RETURN_IF_ERROR(status);
  LONGSPAN_CHECK(sink.finished() == count, "{} of {} prompts finished", sink.finished(), count);
  return run;
}

PeakGflops MeasurePeakOf(int threads) {
  PeakGflops peak;
  // A pool pins the thread that makes it; this program's own must stay free for the stages that it
  // starts later.
  std::thread([&] {
    tensor::ThreadPool pool({.threads = threads, .cores = tensor::CoresOfRank(0, 1, threads)});
    peak = MeasurePeakGflops(pool);
  }).join();
  return peak;
}

bool PeakMoved(double before, double after) {
  return std::abs(before - after) > kMostPeakChange * std::min(before, after);
}

Spread SpreadOf(std::vector<double> values) {
  LONGSPAN_CHECK(!values.empty(), "a spread needs values");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .min = values.front(), .max = values.back()};
}

}  // namespace longspan::apps
