#include "engine/scheduler.h"

#include <algorithm>

namespace longspan::engine {
namespace {

// How many samples of a sequence may be in flight: one that computes and one that follows it, so
// that the first stage has its next row before the leader has heard of the last token.
constexpr size_t kSamplesInFlight = 2;

bool CanDecode(const Sequence& sequence, bool with_prefill) {
  if (sequence.in_prefill() || sequence.output_limit == 0) return false;
  const int64_t next_output = sequence.scheduled - sequence.prompt_length();
  const auto committed = static_cast<int64_t>(sequence.output.size());
  const auto known = committed + static_cast<int64_t>(sequence.pending.size());
  if (next_output >= known || next_output + 1 >= sequence.output_limit ||
      sequence.pending.size() >= kSamplesInFlight)
    return false;
  // A chunk is not to wait for the last stage, which has a token of a plan in flight still to
  // sample.
  return !with_prefill || next_output < committed;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, int64_t pages, int page_size)
    : options_(options),
      chunks_{options.chunk_tokens},
      pages_(pages, page_size, options.reuse_prefixes) {}

base::Status Scheduler::Enqueue(std::unique_ptr<Sequence> sequence, const RequestLimits& limits) {
  if (static_cast<int64_t>(queued_.size()) >= options_.max_queued)
    return base::ResourceExhausted(
        "{} requests are waiting already: try again later, or raise "
        "--max-queued-requests",
        queued_.size());
  sequence->output_limit = OutputLimit(sequence->request, limits);
  const int64_t pages =
      kv::PagesFor(CachedPositions(sequence->request, limits), pages_.pool().page_size());
  queued_.push_back({std::move(sequence), pages});
  return base::OkStatus();
}

void Scheduler::Admit() {
  while (!queued_.empty() && static_cast<int64_t>(running_.size()) < options_.max_running) {
    if (!pages_.Reserve(*queued_.front().sequence, queued_.front().pages)) return;
    running_.push_back(std::move(queued_.front().sequence));
    queued_.pop_front();
  }
}

std::optional<plan::StepPlan> Scheduler::Next() {
  Admit();
  plan::StepPlan plan;
  plan.number.value = last_plan_ + 1;
  const bool with_prefill = std::any_of(running_.begin(), running_.end(), [](const auto& sequence) {
    return sequence->in_prefill();
  });
  for (const auto& sequence : running_)
    if (CanDecode(*sequence, with_prefill)) AddDecodeRow(*sequence, plan);
  int64_t budget = options_.chunk_tokens;
  for (const auto& sequence : running_) {
    if (budget == 0) break;
    if (!sequence->in_prefill()) continue;
    const int64_t most =
        sequence->request.return_logits ? std::min(budget, options_.max_returned_rows) : budget;
    const int64_t end = chunks_.NextEnd(sequence->scheduled, sequence->prompt_length(), most);
    budget -= end - sequence->scheduled;
    AddChunk(*sequence, end, plan);
  }
  if (plan.slices.empty()) return std::nullopt;
  plan.released = std::exchange(released_, {});
  ++last_plan_;
  return plan;
}

void Scheduler::AddDecodeRow(Sequence& sequence, plan::StepPlan& plan) {
  plan::Slice slice{.sequence = sequence.id, .begin = sequence.scheduled};
  const auto index = static_cast<size_t>(sequence.scheduled - sequence.prompt_length());
  slice.tokens.push_back(index < sequence.output.size()
                             ? plan::TokenSource::Literal(sequence.output[index])
                             : sequence.pending[index - sequence.output.size()]);
  Announce(sequence, slice, plan);
  plan.slices.push_back(std::move(slice));
  AddSample(sequence, sequence.scheduled, plan);
  ++sequence.scheduled;
}

void Scheduler::AddChunk(Sequence& sequence, int64_t end, plan::StepPlan& plan) {
  plan::Slice slice{.sequence = sequence.id, .begin = sequence.scheduled};
  for (int64_t position = sequence.scheduled; position < end; ++position)
    slice.tokens.push_back(plan::TokenSource::Literal(sequence.request.prompt[position]));
  Announce(sequence, slice, plan);
  plan.slices.push_back(std::move(slice));
  AddPromptRows(sequence, sequence.scheduled, end, plan);
  if (end == sequence.prompt_length() && sequence.output_limit > 0)
    AddSample(sequence, end - 1, plan);
  sequence.scheduled = end;
}

// Tells the ranks of the sequence, if they have not heard of it, and of the pages that the slice
// fills.
void Scheduler::Announce(Sequence& sequence, plan::Slice& slice, plan::StepPlan& plan) {
  if (!sequence.started) {
    plan::SequenceStart start{.sequence = sequence.id, .sampling = sequence.request.sampling};
    if (start.sampling.has_penalties()) start.prompt = sequence.request.prompt;
    plan.started.push_back(std::move(start));
    sequence.started = true;
  }
  const auto needed = static_cast<size_t>(kv::PagesFor(slice.end(), pages_.pool().page_size()));
  for (; sequence.pages_announced < needed; ++sequence.pages_announced)
    slice.new_pages.push_back(sequence.pages[sequence.pages_announced]);
}

// Lists the rows of [begin, end) that the request wants scored or reported.
void Scheduler::AddPromptRows(const Sequence& sequence, int64_t begin, int64_t end,
                              plan::StepPlan& plan) {
  const Request& request = sequence.request;
  const auto slice = static_cast<uint32_t>(plan.slices.size() - 1);
  const int64_t last = sequence.prompt_length() - 1;
  auto position =
      std::lower_bound(request.score_positions.begin(), request.score_positions.end(), begin);
  for (; position != request.score_positions.end() && *position < end; ++position) {
    plan.logits_rows.push_back(
        {.slice = slice,
         .position = *position,
         .score_token = *position < last ? request.prompt[*position + 1] : -1,
         .return_logits = request.return_logits,
         .return_hidden = request.return_hidden && *position == last});
  }
}

void Scheduler::AddSample(Sequence& sequence, int64_t position, plan::StepPlan& plan) {
  const auto slot = static_cast<uint32_t>(plan.logits_rows.size());
  plan.logits_rows.push_back({.slice = static_cast<uint32_t>(plan.slices.size() - 1),
                              .position = position,
                              .sample = true});
  sequence.pending.push_back(plan::TokenSource::Sampled(plan.number, slot));
}

void Scheduler::OnComputed(const plan::StepPlan& plan) {
  for (const plan::Slice& slice : plan.slices)
    if (Sequence* sequence = Find(slice.sequence)) pages_.OnComputed(*sequence, slice.end());
}

Sequence* Scheduler::Find(plan::SequenceId id) {
  for (const auto& sequence : running_)
    if (sequence->id == id) return sequence.get();
  for (const Queued& queued : queued_)
    if (queued.sequence->id == id) return queued.sequence.get();
  return nullptr;
}

std::unique_ptr<Sequence> Scheduler::Retire(plan::SequenceId id) {
  const auto running = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& sequence) { return sequence->id == id; });
  if (running != running_.end()) {
    std::unique_ptr<Sequence> sequence = std::move(*running);
    running_.erase(running);
    pages_.Release(*sequence);
    if (sequence->started) released_.push_back(id);
    return sequence;
  }
  const auto queued = std::find_if(queued_.begin(), queued_.end(),
                                   [&](const Queued& entry) { return entry.sequence->id == id; });
  if (queued == queued_.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = std::move(queued->sequence);
  queued_.erase(queued);
  return sequence;
}

std::vector<plan::SequenceId> Scheduler::Ids() const {
  std::vector<plan::SequenceId> ids;
  for (const auto& sequence : running_) ids.push_back(sequence->id);
  for (const Queued& queued : queued_) ids.push_back(queued.sequence->id);
  return ids;
}

}  // namespace longspan::engine
