#include "server/generation.h"

#include <algorithm>
#include <utility>

#include "server/served_model.h"

namespace longspan::server {

std::shared_ptr<Generation> Generation::Create(GenerationContext context, GenerationRequest request,
                                               std::function<void()> wake) {
  return std::shared_ptr<Generation>(
      new Generation(std::move(context), std::move(request), std::move(wake)));
}

Generation::Generation(GenerationContext context, GenerationRequest request,
                       std::function<void()> wake)
    : context_(std::move(context)),
      request_(std::move(request)),
      wake_(std::move(wake)),
      sequences_(request_.sequences()),
      others_submitted_(request_.prompts.size()) {}

void Generation::Start() {
  const bool posted = context_.loop.Post(
      [self = shared_from_this()](engine::Engine& engine) { self->SubmitFirst(engine); });
  if (!posted && Add(FailedEvent{base::Unavailable("the server is shutting down")})) wake_();
}

void Generation::Cancel() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(cancelled_, true)) return;
  }
  context_.loop.Post([self = shared_from_this()](engine::Engine& engine) {
    self->over_ = true;
    self->AbortAll(engine);
  });
}

void Generation::Abort() {
  context_.loop.Post([self = shared_from_this()](engine::Engine& engine) {
    if (self->over_) return;
    self->over_ = self->aborted_ = true;
    // What has not begun is told when it would have: SubmitFirst.
    if (self->engine_ == nullptr) return;
    std::vector<bool> runs(self->sequences_);
    for (const auto& [id, stream] : self->streams_) runs[stream.sequence] = true;
    // The choices that wait for their prompt end like those that run.
    const auto choices = static_cast<size_t>(self->request_.choices);
    for (size_t i = 0; i < self->sequences_; ++i)
      if (!runs[i] && !self->others_submitted_[i / choices] && i % choices != 0)
        self->PushAborted(i);
    self->AbortAll(engine);
  });
}

void Generation::PushAborted(size_t sequence) {
  TokenEvent event{.sequence = sequence};
  event.finish = Finish{};
  Push(std::move(event));
}

std::vector<GenerationEvent> Generation::Drain() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

bool Generation::Add(GenerationEvent event) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return false;
  events_.push_back(std::move(event));
  return events_.size() == 1;
}

void Generation::Push(GenerationEvent event) {
  if (Add(std::move(event))) context_.loop.AtTurnEnd(shared_from_this());
}

void Generation::SubmitFirst(engine::Engine& engine) {
  if (aborted_) {
    Push(AcceptedEvent{});
    for (size_t i = 0; i < sequences_; ++i) PushAborted(i);
  }
  if (over_) return;
  engine_ = &engine;
  itself_ = shared_from_this();
  pending_ = request_.sequences();
  for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    base::Status status = Submit(engine, prompt * static_cast<size_t>(request_.choices));
    if (!status.ok()) return Fail(engine, std::move(status));
  }
  Push(AcceptedEvent{});
}

void Generation::SubmitOthers(engine::Engine& engine, size_t prompt, int first) {
  for (int choice = first; choice < request_.choices; ++choice) {
    const size_t sequence =
        prompt * static_cast<size_t>(request_.choices) + static_cast<size_t>(choice);
    if (over_) {
      if (aborted_) PushAborted(sequence);
      continue;
    }
    base::Status status = Submit(engine, sequence);
    if (status.code() == base::StatusCode::kResourceExhausted) {
      // The request was accepted, so it waits for a place in the queue as long as it must.
      const bool posted =
          context_.loop.Post([self = shared_from_this(), prompt, choice](engine::Engine& later) {
            self->SubmitOthers(later, prompt, choice);
          });
      if (!posted) Fail(engine, base::Unavailable("the engine has ended"));
      return;
    }
    if (!status.ok()) return Fail(engine, std::move(status));
  }
}

base::Status Generation::Submit(engine::Engine& engine, size_t sequence) {
  const auto choices = static_cast<size_t>(request_.choices);
  const size_t choice = sequence % choices;
  engine::Request request = request_.common;
  std::vector<int32_t>& prompt = request_.prompts[sequence / choices];
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  request.prompt = prompt;
  request.max_tokens = std::min(request.max_tokens, RoomFor(prompt_tokens, engine.limits()));
  request.sampling.seed += choice;
  std::vector<int32_t> scored;
  if (request_.scored_from && choice == 0) {
    // A row tells of the token behind it.
    for (int64_t token = *request_.scored_from; token < prompt_tokens; ++token)
      request.score_positions.push_back(token - 1);
    scored = request.prompt;
  }
  LONGSPAN_ASSIGN_OR_RETURN(const plan::SequenceId id, engine.Submit(std::move(request), this));
  // The last choice has no other to leave the tokens to.
  if (choice + 1 == choices) prompt = {};
  Stream stream{.sequence = sequence,
                .detokenizer = {},
                .stop = text::StopMatcher(request_.stop),
                .prompt_tokens = prompt_tokens,
                .prompt = std::move(scored),
                .clock = {}};
  if (context_.tokenizer != nullptr)
    stream.detokenizer.emplace(*context_.tokenizer, request_.skip_special);
  streams_.emplace(id, std::move(stream));
  return base::OkStatus();
}

void Generation::Fail(engine::Engine& engine, base::Status status) {
  over_ = true;
  Push(FailedEvent{std::move(status)});
  AbortAll(engine);
}

void Generation::AbortAll(engine::Engine& engine) {
  std::vector<plan::SequenceId> ids;
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  for (const plan::SequenceId id : ids) engine.Abort(id);
  ReleaseIfDone();
}

void Generation::ReleaseIfDone() {
  if (pending_ > 0 && !(over_ && streams_.empty())) return;
  // What this function's callers still do they do before this object goes.
  if (itself_ != nullptr) context_.loop.Post([last = std::move(itself_)](engine::Engine&) {});
}

bool Generation::IsStopToken(int32_t token) const {
  const auto contains = [&](const std::vector<int32_t>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  return contains(request_.common.stop_tokens) ||
         (!request_.common.ignore_end_tokens && contains(context_.end_tokens));
}

double Generation::AddToClock(plan::SequenceId id, int64_t done, Stream& stream) const {
  const double seconds = engine_->SecondsSinceSubmit(id);
  // Tokens that are computed again after a loss or for want of pages say nothing new.
  if (done <= stream.prefilled) return seconds;
  if (const auto predicted = stream.clock.SecondsBetween(stream.prefilled, done))
    stream.chunks.push_back({.predicted_s = *predicted, .measured_s = seconds - stream.prefill_s});
  stream.clock.Add(done, seconds);
  stream.prefilled = done;
  stream.prefill_s = seconds;
  return seconds;
}

void Generation::OnPrefill(plan::SequenceId id, int64_t done, int64_t total) {
  Stream& stream = streams_.at(id);
  const size_t prompt = stream.sequence / static_cast<size_t>(request_.choices);
  if (done == total && !others_submitted_[prompt]) {
    others_submitted_[prompt] = true;
    // Its pages are cached when the commit at hand is done.
    if (request_.choices > 1)
      context_.loop.Post([self = shared_from_this(), prompt](engine::Engine& engine) {
        self->SubmitOthers(engine, prompt, /*first=*/1);
      });
  }
  const double seconds = AddToClock(id, done, stream);
  if (!request_.progress) return;
  Push(PrefillEvent{.sequence = stream.sequence,
                    .done = done,
                    .total = total,
                    .cached = engine_->CachedTokens(id),
                    .seconds = seconds,
                    .seconds_left = done == total ? 0 : stream.clock.SecondsLeft(total)});
}

void Generation::OnScore(plan::SequenceId id, engine::ScoreOutput score) {
  const Stream& stream = streams_.at(id);
  Push(ScoreEvent{.sequence = stream.sequence,
                  .token = {.token = stream.prompt[static_cast<size_t>(score.position) + 1],
                            .logprob = score.next_logprob,
                            .top_logprobs = std::move(score.top_logprobs)}});
}

bool Generation::OnToken(plan::SequenceId id, const engine::TokenOutput& token) {
  Stream& stream = streams_.at(id);
  ++stream.tokens;
  if (stream.tokens == 1) stream.cached_tokens = engine_->CachedTokens(id);
  TokenEvent event{
      .sequence = stream.sequence, .token = token, .cached_tokens = stream.cached_tokens};
  const bool stops = IsStopToken(token.token);
  if (stops) stream.stop_token = token.token;
  event.in_text = !stops || request_.keep_stop;
  if (stream.detokenizer && event.in_text)
    event.text = stream.stop.Append(stream.detokenizer->Append(token.token));
  const bool matched = stream.stop.matched();
  Push(std::move(event));
  return !matched;
}

void Generation::OnFinish(plan::SequenceId id, engine::FinishReason reason,
                          const engine::FinishInfo& info) {
  const auto found = streams_.find(id);
  Stream stream = std::move(found->second);
  streams_.erase(found);
  TokenEvent event{.sequence = stream.sequence, .cached_tokens = info.cached_tokens};
  if (stream.detokenizer && !stream.stop.matched()) {
    event.text = stream.stop.Append(stream.detokenizer->Finish());
    event.text += stream.stop.Finish();
  }
  if (reason == engine::FinishReason::kAbort && !over_) {
    // Nobody asked for it.
    over_ = true;
    Push(FailedEvent{base::Unavailable(
        "the engine failed while this was computed: see the server's log, then try again")});
    return ReleaseIfDone();
  }
  event.finish = Finish{.reason = reason,
                        .stop_string = stream.stop.matched_string(),
                        .stop_token = stream.stop_token,
                        .prompt_tokens = stream.prompt_tokens,
                        .completion_tokens = stream.tokens,
                        .info = info,
                        .chunks = std::move(stream.chunks)};
  if (request_.keep_stop && event.finish->stop_string) event.text += *event.finish->stop_string;
  --pending_;
  Push(std::move(event));
  ReleaseIfDone();
}

}  // namespace longspan::server
