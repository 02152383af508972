#include "sim/simulation.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/mix_bits.h"
#include "plan/memory_use.h"
#include "sim/virtual_clock.h"
#include "sim/virtual_group.h"

namespace longspan::sim {
namespace {

base::Clock::Duration Duration(double seconds) {
  return base::Clock::Duration(std::llround(seconds * 1e9));
}

std::vector<runtime::RankReady> Ranks(const SimulationSetup& setup) {
  const plan::Deployment& deployment = setup.deployment;
  const spec::Mesh& mesh = deployment.mesh;
  const int64_t rows = setup.scheduler.chunk_tokens + setup.scheduler.max_running;
  std::vector<runtime::RankReady> ranks;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const auto ranges = plan::RangesOfRank(setup.stages, mesh.pp, mesh.stage_of(rank));
    const plan::MemoryUse use = plan::MemoryOfRank(deployment, ranges, rows);
    runtime::RankReady ready;
    ready.weight_bytes = std::llround(use.weight_bytes);
    ready.kv_bytes_per_page = std::llround(use.kv_bytes_per_token * setup.page_size);
    ready.workspace_bytes = std::llround(use.workspace_bytes);
    ready.available_bytes =
        std::llround(std::max(0.0, deployment.hardware.memory_bytes - use.weight_bytes));
    ready.node = rank / deployment.hardware.gpus_per_node;
    ready.device = rank % deployment.hardware.gpus_per_node;
    ranks.push_back(ready);
  }
  return ranks;
}

bool HasPrefill(const engine::StepRecord& step) {
  return std::any_of(step.slices.begin(), step.slices.end(),
                     [](const engine::ComputedSlice& slice) { return slice.prefill; });
}

// Over the stretches of steps that follow each other and have a part of a prompt.
double PrefillBubbleShare(const std::vector<engine::StepRecord>& steps, int ranks) {
  int64_t kernels = 0;
  int64_t duration = 0;
  int64_t first = INT64_MAX;
  int64_t last = 0;
  const auto end_stretch = [&] {
    duration += std::max<int64_t>(0, last - first);
    first = INT64_MAX;
    last = 0;
  };
  for (const engine::StepRecord& step : steps) {
    if (!HasPrefill(step)) {
      end_stretch();
      continue;
    }
    for (const plan::StageTiming& timing : step.stages) {
      kernels += timing.kernels;
      for (const plan::StageSpan& span : timing.spans)
        if (span.kind == plan::SpanKind::kKernels) first = std::min(first, span.start);
      last = std::max(last, timing.end);
    }
  }
  end_stretch();
  if (duration == 0) return 0;
  return 1 - static_cast<double>(kernels) /
                 (static_cast<double>(ranks) * static_cast<double>(duration));
}

// One request of the workload, as the engine's sink.
class Recipient : public engine::OutputSink {
 public:
  Recipient(const VirtualClock& clock, const SimRequest& request)
      : clock_(clock), outcome_{.request = request} {}

  bool OnToken(plan::SequenceId, const engine::TokenOutput&) override {
    if (!has_token_) outcome_.ttft_s = Since();
    has_token_ = true;
    return true;
  }
  void OnFinish(plan::SequenceId, engine::FinishReason, const engine::FinishInfo& info) override {
    outcome_.finish_s = Since();
    if (!has_token_) outcome_.ttft_s = outcome_.finish_s;
    outcome_.cached_tokens = info.cached_tokens;
  }
  const RequestOutcome& outcome() const { return outcome_; }

 private:
  double Since() const { return base::Seconds(clock_.Now()) - outcome_.request.at_s; }

  const VirtualClock& clock_;
  RequestOutcome outcome_;
  bool has_token_ = false;
};

class Run {
 public:
  Run(const SimulationSetup& setup, const Workload& workload)
      : setup_(setup), workload_(workload) {}

  base::Result<SimulationResult> ToEnd() {
    runtime::GroupInfo info{.page_size = setup_.page_size, .ranks = Ranks(setup_)};
    LONGSPAN_ASSIGN_OR_RETURN(info.pages, PagesOf(setup_));
    result_.pages = info.pages;
    PipelineTimes times = setup_.times ? *setup_.times : TimesOf(setup_);
    engine::Engine engine(
        std::make_unique<VirtualGroup>(setup_.deployment.mesh, setup_.loops, std::move(info),
                                       KeepingPlans(std::move(times)), clock_),
        {.scheduler = setup_.scheduler,
         .vocab_size = setup_.deployment.model.vocab_size,
         .context_length = setup_.context_length,
         .most_in_flight = setup_.most_in_flight},
        clock_);
    engine.set_step_observer(
        [this](const engine::StepRecord& step) { result_.steps.push_back(step); });
    LONGSPAN_RETURN_IF_ERROR(Serve(engine));
    Summarise();
    return std::move(result_);
  }

 private:
  PipelineTimes KeepingPlans(PipelineTimes times) {
    if (!setup_.keep_plans) return times;
    return {.compute_s =
                [this, inner = times.compute_s](const plan::StepPlan& plan, int stage, int loop) {
                  if (stage == 0 && loop == 0) result_.plans += plan::ToText(plan);
                  return inner(plan, stage, loop);
                },
            .transfer_s = times.transfer_s,
            .latency_s = times.latency_s};
  }

  base::Status Serve(engine::Engine& engine) {
    size_t next = 0;
    while (next < workload_.size() || !engine.idle()) {
      if (engine.idle() && Duration(workload_[next].at_s) > clock_.Now())
        clock_.AdvanceTo(Duration(workload_[next].at_s));
      // As a server does: what came while the engine waited is taken up in its next turn.
      for (; next < workload_.size() && Duration(workload_[next].at_s) <= clock_.Now(); ++next)
        LONGSPAN_RETURN_IF_ERROR(Submit(engine, next));
      LONGSPAN_RETURN_IF_ERROR(engine.Advance());
      result_.most_pages = std::max(result_.most_pages, engine.pages().in_use());
    }
    return base::OkStatus();
  }

  base::Status Submit(engine::Engine& engine, size_t index) {
    const SimRequest& request = workload_[index];
    recipients_.push_back(std::make_unique<Recipient>(clock_, request));
    auto submitted = engine.Submit({.prompt = PromptTokens(request, static_cast<int64_t>(index) + 1,
                                                           setup_.deployment.model.vocab_size),
                                    .max_tokens = request.output_tokens,
                                    .ignore_end_tokens = true},
                                   recipients_.back().get());
    if (submitted.ok()) return base::OkStatus();
    return submitted.status().WithContext(fmt::format("request {}", index + 1));
  }

  void Summarise() {
    int64_t tokens = 0;
    double end = 0;
    for (const auto& recipient : recipients_) {
      const RequestOutcome& outcome = recipient->outcome();
      tokens += outcome.request.prompt_tokens;
      end = std::max(end, outcome.request.at_s + outcome.finish_s);
      result_.requests.push_back(outcome);
    }
    result_.makespan_s = end - workload_.front().at_s;
    if (result_.makespan_s > 0)
      result_.prompt_tokens_per_s = static_cast<double>(tokens) / result_.makespan_s;
    result_.bubble_share = PrefillBubbleShare(result_.steps, setup_.deployment.mesh.ranks());
  }

  const SimulationSetup& setup_;
  const Workload& workload_;
  VirtualClock clock_;
  std::vector<std::unique_ptr<Recipient>> recipients_;
  SimulationResult result_;
};

}  // namespace

base::Result<SimulationResult> Simulate(const SimulationSetup& setup, const Workload& workload) {
  return Run(setup, workload).ToEnd();
}

std::vector<int32_t> PromptTokens(const SimRequest& request, int64_t number, int vocab_size) {
  std::vector<int32_t> tokens;
  tokens.reserve(static_cast<size_t>(request.prompt_tokens));
  // Shared prefixes and requests have streams of their own.
  const auto stream = [&](int64_t position) {
    const bool shared = request.prefix_id > 0 && position < request.prefix_tokens;
    return shared ? 2 * static_cast<uint64_t>(request.prefix_id)
                  : 2 * static_cast<uint64_t>(number) + 1;
  };
  for (int64_t i = 0; i < request.prompt_tokens; ++i)
    tokens.push_back(
        static_cast<int32_t>(base::MixBits(base::MixBits(stream(i)) + static_cast<uint64_t>(i)) %
                             static_cast<uint64_t>(vocab_size)));
  return tokens;
}

base::Result<int64_t> PagesOf(const SimulationSetup& setup) {
  return runtime::ChoosePages(
      {.max_total_tokens = setup.max_total_tokens, .memory_fraction = setup.memory_fraction},
      Ranks(setup), setup.page_size);
}

PipelineTimes TimesOf(const SimulationSetup& setup) {
  const auto cost = std::make_shared<plan::HardwareCost>(setup.deployment);
  const auto rows = [](const plan::StepPlan& plan) { return plan.rows(); };
  return {
      .compute_s =
          [cost, stages = setup.stages, pp = setup.deployment.mesh.pp](const plan::StepPlan& plan,
                                                                       int stage, int loop) {
            std::vector<plan::RowRange> slices;
            for (const plan::Slice& slice : plan.slices)
              slices.push_back({slice.begin, slice.end()});
            const auto listed = static_cast<int64_t>(plan.logits_rows.size());
            // A stage that is alone computes its ranges in one go.
            if (pp == 1) {
              double seconds = 0;
              for (const plan::LayerRange& range : stages)
                seconds += cost->Seconds(range, slices, listed);
              return seconds;
            }
            const auto index =
                static_cast<size_t>(loop) * static_cast<size_t>(pp) + static_cast<size_t>(stage);
            return cost->Seconds(stages[index], slices, listed);
          },
      .transfer_s = [cost, rows](const plan::StepPlan& plan,
                                 int stage) { return cost->BoundarySeconds(stage, rows(plan)); },
      .latency_s = [cost](int stage) { return cost->BoundaryLatency(stage); }};
}

}  // namespace longspan::sim
