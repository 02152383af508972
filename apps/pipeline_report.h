// How well the stages of a pipeline kept busy while prompts were computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/output.h"

namespace longspan::apps {

// A chunk of a prompt, with the time that each stage spent on it, in milliseconds. A step that
// computes several slices has its times divided over them in proportion to their rows.
struct PrefillChunk {
  int64_t sequence = 0;
  int64_t begin = 0;  // positions [begin, end) of the sequence
  int64_t end = 0;
  std::vector<double> start_ms;     // when the stage took the step up, since the first one did
  std::vector<double> end_ms;       // when it had handed the step's output on
  std::vector<double> stage_ms;     // in kernels
  std::vector<double> wait_ms;      // for the previous stage or for a token
  std::vector<double> transfer_ms;  // in the transport's calls
};

// Collects the steps that compute prompts, in the order in which the engine reports them:
//   engine.set_step_observer([&](const auto& step) { report.Add(step); });
//
// The shares are over the prefill: the time from the first stage's start on the first of
// consecutive steps with prompt rows to the last stage's end on the last of them, summed over such
// stretches where steps that only decode lie between.
class PipelineReport {
 public:
  explicit PipelineReport(size_t stages) : stages_(static_cast<int>(stages)) {}

  // Steps without prompt rows end a stretch and count for nothing else.
  void Add(const engine::StepRecord& step);

  int stages() const { return stages_; }
  const std::vector<PrefillChunk>& chunks() const { return chunks_; }

  // Seconds that a stage spent in kernels on each step with prompt rows, as the mean over the
  // stages: a step's share of the whole work, so that stages x the sum of these is the kernel time
  // of the run.
  const std::vector<double>& mean_stage_seconds() const { return mean_stage_seconds_; }

  // 1 - (time of all stages in kernels) / (stages x duration). 0 before the first step.
  double bubble_share() const;

  // CPU time of the stages' threads inside kernels over the kernels' wall time: below about 0.95
  // the machine was busy with something else. 1 before the first step.
  double cpu_share() const;

  // What the steps with prompt rows sent between ranks, summed over the ranks.
  struct Traffic {
    int64_t rows = 0;             // of these steps
    int64_t boundary_bytes = 0;   // to the next stages
    plan::AxisBytes stage_bytes;  // from other ranks of the stage
  };
  const Traffic& traffic() const { return traffic_; }

  // {"stages", "chunks": [{"seq", "begin", "end", "start_ms", "end_ms", "stage_ms", "wait_ms",
  // "transfer_ms"}...], "bubble_share", "cpu_share"}.
  nlohmann::ordered_json ToJson() const;

 private:
  void ExtendStretch(const engine::StepRecord& step);
  void AddChunks(const engine::StepRecord& step);

  int stages_;
  std::vector<PrefillChunk> chunks_;
  std::vector<double> mean_stage_seconds_;
  Traffic traffic_;
  // Nanoseconds.
  int64_t first_start_ = 0;
  int64_t kernels_ = 0;
  int64_t cpu_ = 0;
  int64_t finished_stretches_ = 0;
  int64_t stretch_start_ = 0;
  int64_t stretch_end_ = 0;
};

}  // namespace longspan::apps
