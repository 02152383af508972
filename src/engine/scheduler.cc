#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/plan_window.h"

namespace longspan::engine {
namespace {

// How many samples of a sequence may be in flight: one that computes and one that follows it, so
// that the first stage has its next row before the leader has heard of the last token.
constexpr size_t kSamplesInFlight = 2;

// At most this share of the decodes waits for pages before one is preempted.
constexpr int64_t kWaitingShare = 4;

// A guess, where nothing is known of the machine: tokens cost the same wherever they are.
plan::PipelineCost PriorOf(const SchedulerOptions& options) {
  if (!options.prior.stages.empty()) return options.prior;
  return {.shape = {.ranks = options.stages},
          .stages = std::vector<plan::ChunkCost>(
              static_cast<size_t>(options.stages),
              {.per_step = 1e-2, .per_token = 2e-5, .per_decode_row = 2e-5})};
}

bool WantsRows(const Sequence& sequence) {
  return sequence.group >= 0 && sequence.scheduled < sequence.positions();
}

bool HasPage(const Sequence& sequence, int page_size) {
  return sequence.scheduled < static_cast<int64_t>(sequence.pages.size()) * page_size;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, int64_t pages, int page_size)
    : options_(options),
      pages_(pages, page_size, options.reuse_prefixes),
      queue_(pages, page_size),
      chunks_({.chunk_tokens = options.chunk_tokens,
               .max_returned_rows = options.max_returned_rows,
               .max_decode_stall_s = options.max_decode_stall_s,
               .policy = options.chunk_policy,
               .page_size = page_size},
              PriorOf(options)),
      groups_(options.stages) {}

base::Status Scheduler::Enqueue(std::unique_ptr<Sequence> sequence, const RequestLimits& limits) {
  if (queue_.size() >= options_.max_queued)
    return base::ResourceExhausted(
        "{} requests are waiting already: try again later, or raise "
        "--max-queued-requests",
        queue_.size());
  sequence->output_limit = OutputLimit(sequence->request, limits);
  sequences_.emplace(sequence->id, sequence.get());
  queue_.Push(std::move(sequence));
  return base::OkStatus();
}

void Scheduler::Admit(base::Clock::Duration now) {
  // What comes free belongs to those that wait for it.
  if (queue_.empty() || decodes_wait_) return;
  RunningSequences running;
  for (const auto& sequence : running_) running.Add(*sequence, pages_.pool().page_size());
  while (running.count < options_.max_running) {
    std::unique_ptr<Sequence> sequence = queue_.Start(running, pages_);
    if (sequence == nullptr) return;
    running.Add(*sequence, pages_.pool().page_size());
    if (sequence->admitted == base::Clock::Duration{}) sequence->admitted = now;
    running_.push_back(std::move(sequence));
  }
}

std::optional<plan::StepPlan> Scheduler::Next(base::Clock::Duration now) {
  GrowDecodes();
  Admit(now);
  std::vector<Sequence*> prompts;
  for (const auto& sequence : running_)
    if (sequence->in_prefill()) prompts.push_back(sequence.get());
  PlanBuilder builder({last_plan_ + 1}, pages_.pool().page_size(), step_time().top_k());
  AddDecodeRows(!prompts.empty(), builder);
  chunks_.Add(prompts, groups_.members() > 0, now, builder);
  for (Sequence* prompt : prompts)
    if (!prompt->in_prefill() && prompt->output_limit > 1) groups_.Join(*prompt);
  if (builder.empty()) return std::nullopt;
  ++last_plan_;
  return builder.Finish(std::exchange(released_, {}));
}

void Scheduler::GrowDecodes() {
  int64_t waiting = TryGrowDecodes();
  while (MustPreempt(waiting) && PreemptOne()) waiting = TryGrowDecodes();
  decodes_wait_ = waiting > 0;
}

int64_t Scheduler::TryGrowDecodes() {
  int64_t waiting = 0;
  for (const auto& sequence : running_) {
    if (!WantsRows(*sequence) || HasPage(*sequence, pages_.pool().page_size())) continue;
    // The older ones come first.
    if (!pages_.Grow(*sequence)) ++waiting;
  }
  return waiting;
}

bool Scheduler::MustPreempt(int64_t waiting) const {
  if (waiting == 0) return false;
  if (waiting > std::max<int64_t>(1, groups_.members() / kWaitingShare)) return true;
  // Whoever has something in flight or a page to write to may end and give back what it has.
  return std::none_of(running_.begin(), running_.end(), [&](const auto& sequence) {
    return sequence->in_prefill() || !sequence->pending.empty() ||
           sequence->computed < sequence->scheduled ||
           HasPage(*sequence, pages_.pool().page_size());
  });
}

bool Scheduler::PreemptOne() {
  Sequence* cheapest = nullptr;
  for (const auto& sequence : running_) {
    if (!WantsRows(*sequence) || HasPage(*sequence, pages_.pool().page_size()) ||
        !sequence->pending.empty())
      continue;
    // All rows of a sequence cost more, the more there are.
    if (cheapest == nullptr || sequence->scheduled <= cheapest->scheduled)
      cheapest = sequence.get();
  }
  if (cheapest == nullptr) return false;
  std::unique_ptr<Sequence> sequence = Stop(*cheapest);
  Rewind(*sequence);
  queue_.Return(std::move(sequence));
  ++preemptions_;
  return true;
}

void Scheduler::Rewind(Sequence& sequence) {
  sequence.resumed_outputs = static_cast<int64_t>(sequence.output.size());
  sequence.scheduled = sequence.computed = 0;
  sequence.pages_announced = 0;
  sequence.started = false;
}

void Scheduler::AddDecodeRows(bool with_prefill, PlanBuilder& builder) {
  // A chunk is not to wait for the last stage. Nor is a row to hold up the groups whose turn is
  // before that of its token; where none of those can go on, it does not.
  const uint64_t next = builder.number().value;
  const auto turns = static_cast<uint64_t>(groups_.in_use());
  const uint64_t in_turn = next > turns ? next - turns : 0;
  AddGroup(with_prefill ? 0 : in_turn, builder);
  if (builder.empty() && !with_prefill) AddGroup(next, builder);
}

void Scheduler::AddGroup(uint64_t latest_source, PlanBuilder& builder) {
  for (int turn = 0; turn < groups_.groups() && builder.empty(); ++turn) {
    for (Sequence* sequence : groups_.group(next_group_))
      if (CanDecode(*sequence, latest_source)) builder.AddDecodeRow(*sequence);
    next_group_ = (next_group_ + 1) % groups_.groups();
  }
}

bool Scheduler::CanDecode(const Sequence& sequence, uint64_t latest_source) const {
  if (!WantsRows(sequence) || !HasPage(sequence, pages_.pool().page_size()) ||
      sequence.pending.size() >= kSamplesInFlight)
    return false;
  const int64_t output = sequence.scheduled - sequence.prompt_length();
  const int64_t ahead = output - static_cast<int64_t>(sequence.output.size());
  if (ahead < 0) return true;
  return ahead < static_cast<int64_t>(sequence.pending.size()) &&
         sequence.pending[static_cast<size_t>(ahead)].plan.value <= latest_source;
}

void Scheduler::OnComputed(const plan::StepPlan& plan) {
  for (const plan::Slice& slice : plan.slices)
    if (Sequence* sequence = Find(slice.sequence)) pages_.OnComputed(*sequence, slice.end());
}

void Scheduler::OnMeasured(const plan::StepPlan& plan, std::span<const double> stage_seconds) {
  const plan::StepWork work = WorkOf(plan, step_time().top_k());
  if (work.tokens > 0) chunks_.OnMeasured(work, stage_seconds);
}

void Scheduler::OnMeasured(const plan::StepPlan& plan, double seconds) {
  OnMeasured(plan, std::vector<double>(step_time().rank_costs().size(), seconds));
}

Sequence* Scheduler::Find(plan::SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second;
}

std::unique_ptr<Sequence> Scheduler::Stop(Sequence& sequence) {
  const auto place = std::find_if(running_.begin(), running_.end(),
                                  [&](const auto& other) { return other.get() == &sequence; });
  if (place == running_.end()) return nullptr;
  std::unique_ptr<Sequence> stopped = std::move(*place);
  running_.erase(place);
  groups_.Leave(*stopped);
  pages_.Release(*stopped);
  if (stopped->started) released_.push_back(stopped->id);
  return stopped;
}

std::unique_ptr<Sequence> Scheduler::Retire(plan::SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = Stop(*found->second);
  if (sequence == nullptr) sequence = queue_.Remove(id);
  sequences_.erase(id);
  return sequence;
}

std::vector<plan::SequenceId> Scheduler::Ids() const {
  std::vector<plan::SequenceId> ids;
  for (const auto& sequence : running_) ids.push_back(sequence->id);
  queue_.AppendIds(ids);
  return ids;
}

}  // namespace longspan::engine
