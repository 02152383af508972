#include "apps/pipeline_report.h"

#include <algorithm>
#include <cmath>

namespace longspan::apps {
namespace {

constexpr double kMsPerNanosecond = 1e-6;
constexpr double kSecondsPerNanosecond = 1e-9;

// To a microsecond: more digits than the clock means would only be noise in the output.
double RoundMs(double ms) { return std::round(ms * 1e3) / 1e3; }

std::vector<double> RoundedMs(const std::vector<double>& ms) {
  std::vector<double> rounded(ms.size());
  std::transform(ms.begin(), ms.end(), rounded.begin(), RoundMs);
  return rounded;
}

}  // namespace

void PipelineReport::Add(const engine::StepRecord& step) {
  const bool prefill =
      std::any_of(step.slices.begin(), step.slices.end(),
                  [](const engine::ComputedSlice& slice) { return slice.prefill; });
  if (!prefill) {
    finished_stretches_ += stretch_end_ - stretch_start_;
    stretch_start_ = stretch_end_ = 0;
    return;
  }
  ExtendStretch(step);
  int64_t kernels = 0;
  for (const plan::StageTiming& stage : step.stages) {
    kernels += stage.kernels;
    cpu_ += stage.cpu;
    for (const plan::BoundaryTransfer& send : stage.sends) traffic_.boundary_bytes += send.bytes;
    traffic_.stage_bytes += stage.exchanged;
  }
  for (const engine::ComputedSlice& slice : step.slices) traffic_.rows += slice.end - slice.begin;
  kernels_ += kernels;
  mean_stage_seconds_.push_back(static_cast<double>(kernels) * kSecondsPerNanosecond / stages_);
  AddChunks(step);
}

void PipelineReport::ExtendStretch(const engine::StepRecord& step) {
  for (const plan::StageTiming& stage : step.stages) {
    stretch_start_ = stretch_start_ == 0 ? stage.start : std::min(stretch_start_, stage.start);
    stretch_end_ = std::max(stretch_end_, stage.end);
  }
  if (first_start_ == 0) first_start_ = stretch_start_;
}

void PipelineReport::AddChunks(const engine::StepRecord& step) {
  int64_t rows = 0;
  for (const engine::ComputedSlice& slice : step.slices) rows += slice.end - slice.begin;
  for (const engine::ComputedSlice& slice : step.slices) {
    if (!slice.prefill) continue;
    const double scale =
        kMsPerNanosecond * static_cast<double>(slice.end - slice.begin) / static_cast<double>(rows);
    PrefillChunk chunk{.sequence = slice.sequence.value, .begin = slice.begin, .end = slice.end};
    for (const plan::StageTiming& stage : step.stages) {
      chunk.start_ms.push_back(static_cast<double>(stage.start - first_start_) * kMsPerNanosecond);
      chunk.end_ms.push_back(static_cast<double>(stage.end - first_start_) * kMsPerNanosecond);
      chunk.stage_ms.push_back(static_cast<double>(stage.kernels) * scale);
      chunk.wait_ms.push_back(static_cast<double>(stage.wait) * scale);
      chunk.transfer_ms.push_back(static_cast<double>(stage.transfer) * scale);
    }
    chunks_.push_back(std::move(chunk));
  }
}

double PipelineReport::bubble_share() const {
  const int64_t duration = finished_stretches_ + stretch_end_ - stretch_start_;
  if (duration == 0) return 0;
  return 1 - static_cast<double>(kernels_) / (static_cast<double>(duration) * stages_);
}

double PipelineReport::cpu_share() const {
  return kernels_ == 0 ? 1 : static_cast<double>(cpu_) / static_cast<double>(kernels_);
}

nlohmann::ordered_json PipelineReport::ToJson() const {
  nlohmann::ordered_json chunks = nlohmann::ordered_json::array();
  for (const PrefillChunk& chunk : chunks_) {
    chunks.push_back({{"seq", chunk.sequence},
                      {"begin", chunk.begin},
                      {"end", chunk.end},
                      {"start_ms", RoundedMs(chunk.start_ms)},
                      {"end_ms", RoundedMs(chunk.end_ms)},
                      {"stage_ms", RoundedMs(chunk.stage_ms)},
                      {"wait_ms", RoundedMs(chunk.wait_ms)},
                      {"transfer_ms", RoundedMs(chunk.transfer_ms)}});
  }
  return {{"stages", stages_},
          {"chunks", std::move(chunks)},
          {"bubble_share", bubble_share()},
          {"cpu_share", cpu_share()}};
}

}  // namespace longspan::apps
