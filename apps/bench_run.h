// What the benches share: prompts, runs, and the state of the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/engine_setup.h"
#include "apps/pipeline_report.h"
#include "apps/wiring.h"
#include "base/result.h"
#include "engine/engine.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}  // namespace CLI

namespace longspan::apps {

// A figure is taken with the machine to itself, or marked busy. Below this share of CPU time in
// kernels, or where two probes of the peak differ by more, something else was running.
inline constexpr double kLeastCpuShare = 0.95;
inline constexpr double kMostPeakChange = 0.03;

void AddBenchPrefill(CLI::App& bench, Command& selected);
void AddBenchDecode(CLI::App& bench, Command& selected);
void AddBenchPipeline(CLI::App& bench, Command& selected);
void AddBenchChunks(CLI::App& bench, Command& selected);
void AddBenchOps(CLI::App& bench, Command& selected);

// The same ids in every run of the program; `stream` tells prompts apart.
std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab_size, uint64_t stream);

// Prompts for one engine: what must be set so that it holds just these.
struct BenchLoad {
  int64_t sequences = 1;
  int64_t tokens = 0;         // of the longest, prompt and output together
  bool synthetic_kv = false;  // they begin with a prefix that is not computed
};

// An engine of the flags for that load. Its context may be longer than the model was trained for:
// speed does not depend on that.
base::Result<std::unique_ptr<engine::Engine>> StartBenchEngine(EngineFlags flags, EngineSetup setup,
                                                               const BenchLoad& load);

// `prompt_tokens` behind a synthetic prefix of `depth`.
engine::Request BenchRequest(const engine::Engine& engine, int64_t depth, int64_t prompt_tokens,
                             uint64_t stream);

struct PrefillRun {
  double seconds = 0;  // from the first request to the last one's first token
  PipelineReport report;
};

using StepObserver = std::function<void(const engine::StepRecord&)>;

// Gives all requests to the engine at once and waits for their first tokens. The observer hears of
// every step.
base::Result<PrefillRun> RunPrefill(engine::Engine& engine, std::vector<engine::Request> requests,
                                    const StepObserver& observer = {});

// The peak of that many threads, pinned as a rank's threads are.
PeakGflops MeasurePeakOf(int threads);
// Bytes per second that they read from memory, see apps/memory_probe.h.
base::Result<double> MeasureReadRateOf(int threads);

// Whether two probes of one quantity differ by more than kMostPeakChange.
bool PeakMoved(double before, double after);

struct Spread {
  double median = 0;  // of an even number of values the mean of the middle two
  double min = 0;
  double max = 0;
};
Spread SpreadOf(std::vector<double> values);  // at least one

}  // namespace longspan::apps
