#include "engine/plan_builder.h"

#include <algorithm>
#include <utility>

#include "engine/plan_window.h"

namespace longspan::engine {

void PlanBuilder::AddDecodeRow(Sequence& sequence) {
  const int64_t position = sequence.scheduled;
  const auto index = static_cast<size_t>(position - sequence.prompt_length());
  AddSlice(sequence, {.sequence = sequence.id,
                      .begin = position,
                      .tokens = {index < sequence.output.size()
                                     ? plan::TokenSource::Literal(sequence.output[index])
                                     : sequence.pending[index - sequence.output.size()]},
                      .new_pages = {}});
  AddSample(sequence, position);
}

void PlanBuilder::AddChunk(Sequence& sequence, int64_t end) {
  const int64_t begin = sequence.scheduled;
  plan::Slice slice{.sequence = sequence.id, .begin = begin};
  slice.tokens.reserve(static_cast<size_t>(end - begin));
  for (int64_t position = begin; position < end; ++position)
    slice.tokens.push_back(plan::TokenSource::Literal(sequence.token(position)));
  AddSlice(sequence, std::move(slice));
  // Those of a sequence that was preempted have been reported.
  if (!sequence.resumed()) AddPromptRows(sequence, begin, end);
  if (end == sequence.prefill_length() && sequence.output_limit > 0) AddSample(sequence, end - 1);
}

// Tells the ranks of the sequence, if they have not heard of it, and of the pages that the slice
// fills.
void PlanBuilder::AddSlice(Sequence& sequence, plan::Slice slice) {
  if (!sequence.started) {
    plan::SequenceStart start{.sequence = sequence.id, .sampling = sequence.request.sampling};
    if (start.sampling.has_penalties()) {
      start.prompt = sequence.request.prompt;
      start.output = sequence.output;
    }
    plan_.started.push_back(std::move(start));
    sequence.started = true;
  }
  const auto needed = static_cast<size_t>(kv::PagesFor(slice.end(), page_size_));
  for (; sequence.pages_announced < needed; ++sequence.pages_announced)
    slice.new_pages.push_back(sequence.pages[sequence.pages_announced]);
  AddWork(slice, top_k_, work_);
  sequence.scheduled = slice.end();
  plan_.slices.push_back(std::move(slice));
}

// Lists the rows of [begin, end) that the request wants scored or reported.
void PlanBuilder::AddPromptRows(const Sequence& sequence, int64_t begin, int64_t end) {
  const Request& request = sequence.request;
  const auto slice = static_cast<uint32_t>(plan_.slices.size() - 1);
  const int64_t last = sequence.prompt_length() - 1;
  auto position =
      std::lower_bound(request.score_positions.begin(), request.score_positions.end(), begin);
  for (; position != request.score_positions.end() && *position < end; ++position) {
    plan_.logits_rows.push_back(
        {.slice = slice,
         .position = *position,
         .score_token = *position < last ? request.prompt[*position + 1] : -1,
         .return_logits = request.return_logits,
         .return_hidden = request.return_hidden && *position == last});
  }
}

void PlanBuilder::AddSample(Sequence& sequence, int64_t position) {
  const auto slot = static_cast<uint32_t>(plan_.logits_rows.size());
  plan_.logits_rows.push_back({.slice = static_cast<uint32_t>(plan_.slices.size() - 1),
                               .position = position,
                               .sample = true});
  sequence.pending.push_back(plan::TokenSource::Sampled(plan_.number, slot));
}

plan::StepPlan PlanBuilder::Finish(std::vector<plan::SequenceId> released) {
  plan_.released = std::move(released);
  return std::move(plan_);
}

}  // namespace longspan::engine
