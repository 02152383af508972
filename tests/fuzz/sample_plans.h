// Plans and results that have everything in them.
#pragma once

#include "plan/step_plan.h"
#include "plan/step_result.h"

namespace longspan::testing {

constexpr int kSamplePageSize = 4;
constexpr int64_t kSamplePages = 64;

// Plan `number` of a run in which sequence 1 is a prompt in chunks of 4, and the others come,
// decode a token and go.
inline plan::StepPlan SamplePlan(uint64_t number, uint32_t epoch) {
  plan::StepPlan plan{.number = {number}, .epoch = {epoch}, .ends_group = number % 2 == 0};
  const auto n = static_cast<int64_t>(number);
  const auto page = [](int64_t value) { return static_cast<kv::PageId>(value % kSamplePages); };
  if (number == 1) plan.started.emplace_back().sequence = {1};
  plan::SequenceStart& start = plan.started.emplace_back();
  start.sequence = {100 + n};
  start.sampling = {.temperature = 0.7,
                    .top_k = 5,
                    .top_p = 0.9,
                    .seed = number,
                    .repetition_penalty = 1.1,
                    .top_logprobs = 2};
  start.sampling.logit_bias = {{7, -2.5F}, {11, 100.0F}};
  start.prompt = {4, 5, 6};
  start.output = {7};
  if (number > 2) plan.released.push_back({100 + n - 2});
  std::vector<plan::TokenSource> chunk(4, plan::TokenSource::Literal(17));
  plan.slices.push_back({{1}, (n - 1) * 4, std::move(chunk), {page(n)}});
  plan.slices.push_back({{100 + n}, 0, {plan::TokenSource::Literal(0)}, {page(n + 1)}});
  plan.logits_rows.push_back(
      {.slice = 0, .position = n * 4 - 1, .score_token = 6, .return_logits = true});
  plan.logits_rows.push_back({.slice = 1, .position = 0, .sample = true, .return_hidden = true});
  if (number > 1) {
    plan.slices.push_back({{100 + n - 1}, 1, {plan::TokenSource::Sampled({number - 1}, 1)}, {}});
    plan.logits_rows.push_back({.slice = 2, .position = 1, .sample = true});
  }
  return plan;
}

inline plan::StepResult SampleResult(uint64_t number, uint32_t epoch) {
  plan::StepResult result{.plan = {number}, .epoch = {epoch}, .rank = 1};
  result.timing = {.start = 10, .end = 30, .kernels = 15, .cpu = 14, .wait = 4, .transfer = 1};
  result.timing.intake = {.taken = 5, .tables = 6, .posted = 7};
  result.timing.spans = {{plan::SpanKind::kIdle, 8, 10}, {plan::SpanKind::kKernels, 10, 25}};
  result.timing.sends = {{.posted = 26, .bytes = 4096}};
  result.timing.receives = {{.posted = 7, .done = 9, .bytes = 2048}};
  result.timing.exchanged = {.tensor = 11, .context = 12, .expert = 13};
  result.rows = {
      {.slot = 1, .token = 77, .logprob = -0.5f, .top_logprobs = {{77, -0.5f}}, .logits = {1, 2}},
      {.slot = 2, .token = -1}};
  result.hidden = {{.slot = 1, .depth = 2, .values = {0.5f}}};
  if (number % 2 == 0) result.status = base::ResourceExhausted("no pages");
  return result;
}

}  // namespace longspan::testing
