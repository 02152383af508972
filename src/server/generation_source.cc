#include "server/generation_source.h"

#include <utility>
#include <variant>

#include "server/api_error.h"

namespace longspan::server {

GenerationSource::GenerationSource(Options options)
    : options_(std::move(options)),
      times_(options_.generation->sequences()),
      left_(options_.generation->sequences()) {
  options_.metrics->OnSubmitted(static_cast<int64_t>(left_));
}

GenerationSource::~GenerationSource() {
  if (!ended_) OnGone();
}

void GenerationSource::OnGone() {
  if (ended_) return;
  options_.generation->Cancel();
  options_.metrics->OnGone(static_cast<int64_t>(left_));
  End();
}

void GenerationSource::End() {
  if (std::exchange(ended_, true)) return;
  if (options_.on_end) options_.on_end();
}

void GenerationSource::OnSilence(ResponseWriter& writer) {
  if (!begun_ || ended_) return;
  std::string sign_of_life;
  options_.formatter->OnSilence(sign_of_life);
  writer.Write(sign_of_life);
}

void GenerationSource::Pull(ResponseWriter& writer) {
  for (GenerationEvent& event : options_.generation->Drain()) {
    if (ended_) return;
    Take(std::move(event), writer);
  }
  if (ended_) return;
  if (left_ == 0) {
    if (options_.stream) {
      options_.formatter->OnEnd(out_);
      writer.Write(out_);
      writer.End();
    } else {
      writer.Respond({.status = 200, .body = Dump(options_.formatter->Body())});
    }
    return End();
  }
  writer.Write(out_);
  out_.clear();
}

void GenerationSource::Take(GenerationEvent event, ResponseWriter& writer) {
  if (std::holds_alternative<AcceptedEvent>(event)) {
    if (options_.stream) {
      begun_ = true;
      writer.Begin("text/event-stream; charset=utf-8");
    }
    options_.formatter->OnAccepted(out_);
  } else if (const auto* prefill = std::get_if<PrefillEvent>(&event)) {
    if (options_.stream) options_.formatter->OnPrefill(*prefill, out_);
  } else if (const auto* score = std::get_if<ScoreEvent>(&event)) {
    options_.formatter->OnScore(*score);
  } else if (auto* token = std::get_if<TokenEvent>(&event)) {
    TakeToken(std::move(*token));
  } else if (const auto* failed = std::get_if<FailedEvent>(&event)) {
    Fail(failed->status, writer);
  }
}

void GenerationSource::TakeToken(TokenEvent event) {
  const auto now = base::SteadyClock().Now();
  Times& times = times_[event.sequence];
  if (event.token) {
    if (times.has_token) {
      options_.metrics->OnTokens(1, base::Seconds(now - times.last_token));
    } else {
      options_.metrics->OnFirstToken(base::Seconds(now - options_.arrived));
    }
    times = {.last_token = now, .has_token = true};
  }
  if (event.finish) {
    --left_;
    options_.metrics->OnFinish(base::Seconds(now - options_.arrived), *event.finish);
  }
  options_.formatter->OnToken(std::move(event), out_);
}

void GenerationSource::Fail(const base::Status& status, ResponseWriter& writer) {
  options_.metrics->OnFailed(static_cast<int64_t>(left_));
  const int http_status = HttpStatusOf(status);
  if (begun_) {
    options_.formatter->OnError(ErrorJson(http_status, status.message()), out_);
    writer.Write(out_);
    writer.End();
  } else {
    writer.Respond(ErrorResponse(http_status, status.message()));
  }
  End();
}

}  // namespace longspan::server
