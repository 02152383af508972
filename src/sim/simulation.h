// The engine over stages that are not there, and what comes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "plan/hardware_cost.h"
#include "plan/layer_split.h"
#include "sim/virtual_pipeline.h"
#include "sim/workload.h"

namespace longspan::sim {

struct SimulationSetup {
  plan::Deployment deployment;
  int loops = 1;
  std::vector<plan::LayerRange> stages;  // virtual ones, in pipeline order
  engine::SchedulerOptions scheduler;
  int page_size = 64;
  int64_t context_length = 0;
  std::optional<int64_t> max_total_tokens;  // else what the memory holds
  double memory_fraction = 0.8;
  std::optional<int64_t> most_in_flight;  // plans, see engine::EngineOptions
  // Keeps the text of every plan (plan::ToText), to compare with another run.
  bool keep_plans = false;
  // What stages take instead of what the hardware says.
  std::optional<PipelineTimes> times;
};

struct RequestOutcome {
  SimRequest request;
  double ttft_s = 0;  // from its arrival to its first token, or to the end of its prompt
  double finish_s = 0;
  int64_t cached_tokens = 0;
};

struct SimulationResult {
  std::vector<RequestOutcome> requests;  // in the order of the workload
  double makespan_s = 0;                 // from the first arrival to the last finish
  double prompt_tokens_per_s = 0;        // of all requests, over the makespan
  // Of prefill: 1 - time in kernels / (ranks x time from the first rank's start to the last one's
  // end), over stretches of steps that have a part of a prompt. As `longspan generate` counts it.
  double bubble_share = 0;
  int64_t most_pages = 0;  // in use at once
  int64_t pages = 0;
  std::vector<engine::StepRecord> steps;
  std::string plans;  // with keep_plans
};

// Runs the workload to its end. The same arguments give the same result. Errors are those of the
// engine, with the number of the request that it refuses, and memory that does not suffice.
base::Result<SimulationResult> Simulate(const SimulationSetup& setup, const Workload& workload);

// Pages that fit beside the weights and the workspace of the fullest rank, for --max-total-tokens
// or a share of what is left; ResourceExhausted with the numbers where not one page fits.
base::Result<int64_t> PagesOf(const SimulationSetup& setup);

// The times that the deployment's hardware says.
PipelineTimes TimesOf(const SimulationSetup& setup);

// Tokens of a request's prompt: the same for the same request of a workload.
std::vector<int32_t> PromptTokens(const SimRequest& request, int64_t number, int vocab_size);

}  // namespace longspan::sim
