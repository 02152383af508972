#include "plan/step_plan.h"

#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace longspan::plan {
namespace {

std::string TokensText(const std::vector<TokenSource>& tokens) {
  std::string text;
  for (const TokenSource& token : tokens) {
    if (!text.empty()) text += ' ';
    if (token.is_literal()) {
      fmt::format_to(std::back_inserter(text), "{}", token.literal);
    } else {
      fmt::format_to(std::back_inserter(text), "plan{}.{}", token.plan.value, token.slot);
    }
  }
  return text;
}

std::string SamplingText(const spec::SamplingSpec& s) {
  std::string text = fmt::format(
      "temperature={} top_k={} top_p={} min_p={} seed={} penalties={},{},{} top_logprobs={}",
      s.temperature, s.top_k, s.top_p, s.min_p, s.seed, s.repetition_penalty, s.frequency_penalty,
      s.presence_penalty, s.top_logprobs);
  for (const auto& [token, bias] : s.logit_bias)
    fmt::format_to(std::back_inserter(text), " bias={}:{}", token, bias);
  return text;
}

}  // namespace

int64_t StepPlan::rows() const {
  int64_t rows = 0;
  for (const Slice& slice : slices) rows += static_cast<int64_t>(slice.tokens.size());
  return rows;
}

std::string ToText(const StepPlan& plan) {
  std::string text = fmt::format("plan {} epoch {}{}\n", plan.number.value, plan.epoch.value,
                                 plan.ends_group ? "" : " group goes on");
  const auto out = std::back_inserter(text);
  for (const SequenceId id : plan.released) fmt::format_to(out, "release {}\n", id.value);
  for (const SequenceStart& start : plan.started) {
    fmt::format_to(out, "start {} {} prompt=[{}] output=[{}]\n", start.sequence.value,
                   SamplingText(start.sampling), fmt::join(start.prompt, " "),
                   fmt::join(start.output, " "));
  }
  for (const Slice& slice : plan.slices) {
    fmt::format_to(out, "slice {} [{}, {}) pages=[{}] tokens=[{}]\n", slice.sequence.value,
                   slice.begin, slice.end(), fmt::join(slice.new_pages, " "),
                   TokensText(slice.tokens));
  }
  for (const LogitsRow& row : plan.logits_rows) {
    fmt::format_to(out, "logits slice={} position={}{}{}{}{}\n", row.slice, row.position,
                   row.sample ? " sample" : "",
                   row.score_token >= 0 ? fmt::format(" score={}", row.score_token) : "",
                   row.return_logits ? " logits" : "", row.return_hidden ? " hidden" : "");
  }
  return text;
}

}  // namespace longspan::plan
