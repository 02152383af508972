#include "engine/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/stage_seconds.h"

namespace longspan::engine {
namespace {

// A rank reports rows that its plan lists.
base::Status CheckResult(const plan::StepResult& result, const plan::StepPlan& plan) {
  const auto listed = [&](const auto& row) { return row.slot < plan.logits_rows.size(); };
  if (result.epoch != plan.epoch || !std::all_of(result.rows.begin(), result.rows.end(), listed) ||
      !std::all_of(result.hidden.begin(), result.hidden.end(), listed))
    return base::DataLoss("rank {} reports rows that plan {} does not list", result.rank,
                          plan.number.value);
  return base::OkStatus();
}

bool WantsHidden(const plan::StepPlan& plan) {
  return std::any_of(plan.logits_rows.begin(), plan.logits_rows.end(),
                     [](const plan::LogitsRow& row) { return row.return_hidden; });
}

SchedulerOptions WithStages(SchedulerOptions options, int stages) {
  options.stages = stages;
  LONGSPAN_CHECK(options.prior.stages.empty() || options.prior.shape.ranks == stages,
                 "a prior for other stages");
  return options;
}

}  // namespace

Engine::Engine(std::unique_ptr<runtime::StageGroup> group, EngineOptions options,
               const base::Clock& clock)
    : group_(std::move(group)),
      sender_(*group_),
      options_(std::move(options)),
      clock_(clock),
      limits_{.vocab_size = options_.vocab_size,
              .context_length = options_.context_length,
              .capacity_tokens = group_->info().capacity_tokens(),
              .page_size = group_->info().page_size},
      scheduler_(WithStages(options_.scheduler, group_->stages()), group_->info().pages,
                 group_->info().page_size),
      log_(base::Log("engine")),
      info_(group_->info()),
      counters_(static_cast<size_t>(group_->ranks())) {}

Engine::~Engine() {
  if (options_.costs_learnt && scheduler_.step_time().IsWorthKeeping())
    options_.costs_learnt(scheduler_.step_time().cost());
}

base::Result<plan::SequenceId> Engine::Submit(Request request, OutputSink* sink) {
  LONGSPAN_RETURN_IF_ERROR(failure_);
  LONGSPAN_RETURN_IF_ERROR(CheckRequest(request, limits_));
  auto sequence = std::make_unique<Sequence>();
  sequence->id = {last_sequence_ + 1};
  sequence->request = std::move(request);
  sequence->sink = sink;
  sequence->submitted = clock_.Now();
  const plan::SequenceId id = sequence->id;
  LONGSPAN_RETURN_IF_ERROR(scheduler_.Enqueue(std::move(sequence), limits_));
  ++last_sequence_;
  return id;
}

void Engine::Abort(plan::SequenceId id) {
  if (Sequence* sequence = scheduler_.Find(id)) Finish(*sequence, FinishReason::kAbort);
}

base::Status Engine::RunUntilIdle() {
  base::Status status = failure_;
  while (status.ok() && !idle()) status = Advance();
  return status;
}

int64_t Engine::CachedTokens(plan::SequenceId id) {
  const Sequence* sequence = scheduler_.Find(id);
  return sequence == nullptr ? 0 : sequence->cached_tokens;
}

double Engine::SecondsSinceSubmit(plan::SequenceId id) {
  const Sequence* sequence = scheduler_.Find(id);
  return sequence == nullptr ? 0 : SecondsSince(sequence->submitted);
}

base::Status Engine::Advance() {
  if (failure_.ok() && idle()) return base::OkStatus();
  if (failure_.ok()) {
    base::Status status = lost_;
    if (status.ok()) status = FillWindow();
    if (status.ok() && !in_flight_.empty()) status = TakeResult();
    if (!status.ok()) failure_ = Recover(std::move(status));
  }
  if (failure_.ok()) return failure_;
  counters_.SetActive(false, Now());
  for (const plan::SequenceId id : scheduler_.Ids()) Abort(id);
  return failure_;
}

std::vector<PlanSize> Engine::Uncommitted() const {
  std::vector<PlanSize> uncommitted;
  for (const InFlight& step : in_flight_)
    if (!step.has_reported[static_cast<size_t>(group_->mesh().reporting_rank())])
      uncommitted.push_back(SizeOf(step.plan, scheduler_.step_time()));
  return uncommitted;
}

bool Engine::MayAddPlan() const {
  LONGSPAN_CHECK(options_.most_in_flight.value_or(1) >= 1, "no plan could ever follow");
  const std::vector<PlanSize> uncommitted = Uncommitted();
  if (options_.most_in_flight) return std::ssize(uncommitted) < *options_.most_in_flight;
  return MayFollow(uncommitted, runtime::PlansInFlight(group_->stages(), group_->loops()));
}

base::Status Engine::FillWindow() {
  while (MayAddPlan()) {
    LeaderTiming timing{.begin = Now()};
    std::optional<plan::StepPlan> plan = scheduler_.Next(clock_.Now());
    if (!plan) return sender_->Pause(static_cast<int>(Uncommitted().size()));
    plan->epoch = epoch_;
    if (log_.should_log(spdlog::level::trace)) log_.trace("{}", plan::ToText(*plan));
    timing.made = Now();
    LONGSPAN_RETURN_IF_ERROR(sender_->Add(*plan));
    timing.submitted = Now();
    counters_.SetActive(true, timing.made);
    timing.reports.resize(static_cast<size_t>(group_->ranks()));
    InFlight step{.plan = std::move(*plan)};
    step.record.leader = std::move(timing);
    step.record.plan = step.plan.number;
    step.record.stages.resize(static_cast<size_t>(group_->ranks()));
    step.has_reported.resize(static_cast<size_t>(group_->ranks()));
    for (const plan::Slice& slice : step.plan.slices) {
      const Sequence* sequence = scheduler_.Find(slice.sequence);
      step.record.slices.push_back(
          {slice.sequence, slice.begin, slice.end(), slice.begin < sequence->prefill_length()});
    }
    in_flight_.push_back(std::move(step));
  }
  return base::OkStatus();
}

base::Status Engine::TakeResult() {
  LONGSPAN_ASSIGN_OR_RETURN(plan::StepResult result, group_->Next());
  if (result.epoch < epoch_) return base::OkStatus();
  const auto step = std::find_if(in_flight_.begin(), in_flight_.end(),
                                 [&](const InFlight& s) { return s.plan.number == result.plan; });
  if (step == in_flight_.end() || result.rank < 0 || result.rank >= group_->ranks())
    return base::DataLoss("rank {} reports plan {}, which is not in flight", result.rank,
                          result.plan.value);
  LONGSPAN_RETURN_IF_ERROR(CheckResult(result, step->plan));
  const auto rank = static_cast<size_t>(result.rank);
  if (step->has_reported[rank])
    return base::DataLoss("rank {} reports plan {} twice", result.rank, result.plan.value);
  step->has_reported[rank] = true;
  step->record.stages[rank] = std::move(result.timing);
  step->record.leader.reports[rank] = Now();
  ++step->reported;
  const bool last = result.rank == group_->mesh().reporting_rank();
  std::move(result.hidden.begin(), result.hidden.end(), std::back_inserter(step->result.hidden));
  if (last) {
    result.hidden = std::move(step->result.hidden);
    step->result = std::move(result);
  }
  // Tokens are committed as soon as the last stage has them; hidden rows come from every stage.
  const bool complete = step->reported == group_->ranks();
  if (!step->committed && (complete || (last && !WantsHidden(step->plan)))) {
    step->committed = true;
    step->record.leader.commit_begin = Now();
    Commit(step->plan, std::move(step->result));
    step->record.leader.committed = Now();
  }
  ReportComputed();
  return base::OkStatus();
}

void Engine::ReportComputed() {
  while (!in_flight_.empty() && in_flight_.front().reported == group_->ranks()) {
    const StepRecord& record = in_flight_.front().record;
    // A process's first step meets its weights and buffers for the first time: it tells nothing of
    // the next.
    std::vector<double> seconds;
    if (std::exchange(group_is_warm_, true))
      seconds = options_.stage_seconds ? options_.stage_seconds(record)
                                       : StageSeconds(record, group_->mesh());
    scheduler_.OnMeasured(in_flight_.front().plan, seconds);
    counters_.Add(record);
    if (options_.trace) options_.trace(record);
    if (observer_) observer_(record);
    in_flight_.pop_front();
  }
  if (in_flight_.empty()) counters_.SetActive(false, Now());
}

void Engine::Commit(const plan::StepPlan& plan, plan::StepResult result) {
  std::sort(result.rows.begin(), result.rows.end(),
            [](const plan::RowResult& a, const plan::RowResult& b) { return a.slot < b.slot; });
  scheduler_.OnComputed(plan);
  CommitHidden(plan, std::move(result.hidden));
  CommitPrefill(plan);
  for (plan::RowResult& row : result.rows) CommitRow(plan, std::move(row));
  // Sequences that only wanted their prompt computed.
  for (const plan::Slice& slice : plan.slices) {
    Sequence* sequence = scheduler_.Find(slice.sequence);
    if (sequence == nullptr || sequence->output_limit > 0 ||
        slice.end() < sequence->prompt_length())
      continue;
    sequence->first_token_s = SecondsSince(sequence->submitted);
    Finish(*sequence, FinishReason::kLength);
  }
}

void Engine::CommitHidden(const plan::StepPlan& plan, std::vector<plan::HiddenRow> rows) {
  for (plan::HiddenRow& row : rows) {
    const plan::SequenceId id = plan.slices[plan.logits_rows[row.slot].slice].sequence;
    if (Sequence* sequence = scheduler_.Find(id))
      sequence->sink->OnHidden(id, row.depth, std::move(row.values));
  }
}

void Engine::CommitPrefill(const plan::StepPlan& plan) {
  for (const plan::Slice& slice : plan.slices) {
    Sequence* sequence = scheduler_.Find(slice.sequence);
    if (sequence == nullptr) continue;
    const int64_t done = std::min(slice.end(), sequence->prompt_length());
    if (done <= sequence->reported) continue;
    sequence->reported = done;
    restarts_ = 0;
    sequence->sink->OnPrefill(slice.sequence, done, sequence->prompt_length());
  }
}

void Engine::CommitRow(const plan::StepPlan& plan, plan::RowResult row) {
  const plan::LogitsRow& wanted = plan.logits_rows[row.slot];
  Sequence* sequence = scheduler_.Find(plan.slices[wanted.slice].sequence);
  // A row that was ahead of a stop: never published.
  if (sequence == nullptr) return;
  if (wanted.sample) {
    CommitToken(*sequence, std::move(row));
  } else {
    ++sequence->scored;
    sequence->sink->OnScore(sequence->id, {wanted.position, row.logprob,
                                           std::move(row.top_logprobs), std::move(row.logits)});
  }
}

void Engine::CommitToken(Sequence& sequence, plan::RowResult row) {
  sequence.pending.pop_front();
  sequence.output.push_back(row.token);
  restarts_ = 0;
  if (sequence.output.size() == 1) sequence.first_token_s = SecondsSince(sequence.submitted);
  const auto contains = [&](const std::vector<int32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), row.token) != tokens.end();
  };
  const bool stopped = contains(sequence.request.stop_tokens) ||
                       (!sequence.request.ignore_end_tokens && contains(options_.end_tokens));
  const bool full = static_cast<int64_t>(sequence.output.size()) >= sequence.output_limit;
  const plan::SequenceId id = sequence.id;
  const bool go_on =
      sequence.sink->OnToken(id, {row.token, row.logprob, std::move(row.top_logprobs)});
  // The sink may have aborted it.
  Sequence* left = scheduler_.Find(id);
  if (left == nullptr || (go_on && !stopped && !full)) return;
  Finish(*left, !go_on || stopped ? FinishReason::kStop : FinishReason::kLength);
}

void Engine::Finish(Sequence& sequence, FinishReason reason) {
  const std::unique_ptr<Sequence> retired = scheduler_.Retire(sequence.id);
  retired->sink->OnFinish(retired->id, reason,
                          {.first_token_s = retired->first_token_s,
                           .finish_s = SecondsSince(retired->submitted),
                           .queue_s = QueueSeconds(*retired),
                           .cached_tokens = retired->cached_tokens});
}

double Engine::QueueSeconds(const Sequence& sequence) const {
  const bool waits = sequence.admitted == base::Clock::Duration{};
  return base::Seconds((waits ? clock_.Now() : sequence.admitted) - sequence.submitted);
}

double Engine::SecondsSince(base::Clock::Duration begin) const {
  return base::Seconds(clock_.Now() - begin);
}

}  // namespace longspan::engine
