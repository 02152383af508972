// All that one request generates: the sequences of its prompts and choices, as events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/output.h"
#include "engine/request.h"
#include "server/engine_loop.h"
#include "server/prefill_clock.h"
#include "text/incremental_detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace longspan::server {

struct GenerationRequest {
  std::vector<std::vector<int32_t>> prompts;
  int choices = 1;         // of every prompt
  engine::Request common;  // all but the prompt; choice i draws with its seed + i
  std::vector<std::string> stop;
  bool skip_special = true;  // tokens like <|im_end|> are not text
  bool keep_stop = false;    // what ended the text, string or token, is part of it
  bool progress = false;     // PrefillEvents are wanted
  // The first token of prompts, at least 1, whose log-probability is wanted; with as many others as
  // common.sampling.top_logprobs. None: no ScoreEvents.
  std::optional<int64_t> scored_from;

  size_t sequences() const { return prompts.size() * static_cast<size_t>(choices); }
};

// What a generation has got from its server.
struct GenerationContext {
  EngineLoop& loop;
  const text::Tokenizer* tokenizer = nullptr;  // null: no text, only ids
  std::vector<int32_t> end_tokens;             // the model's own
};

// The sequences are queued: the request was not refused.
struct AcceptedEvent {};

struct PrefillEvent {
  size_t sequence = 0;  // prompt * choices + choice
  int64_t done = 0;     // tokens, the cached ones among them
  int64_t total = 0;
  int64_t cached = 0;
  double seconds = 0;                  // since the request was queued
  std::optional<double> seconds_left;  // a prediction
};

// A chunk of a prompt whose time was predicted before it was computed.
struct ChunkTime {
  double predicted_s = 0;
  double measured_s = 0;
};

struct Finish {
  engine::FinishReason reason = engine::FinishReason::kAbort;
  std::optional<std::string> stop_string;  // that ended it
  std::optional<int32_t> stop_token;
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  engine::FinishInfo info;
  std::vector<ChunkTime> chunks;
};

// One token of a sequence, or its end.
struct TokenEvent {
  size_t sequence = 0;
  std::string text;  // that has become certain
  std::optional<engine::TokenOutput> token;
  std::optional<Finish> finish;
  bool in_text = true;        // false for the token that ended it
  int64_t cached_tokens = 0;  // of the prompt
};

// What the model thinks of a token of the prompt; once for all choices, in order.
struct ScoreEvent {
  size_t sequence = 0;
  engine::TokenOutput token;
};

// The engine refuses; nothing follows.
struct FailedEvent {
  base::Status status;
};

using GenerationEvent =
    std::variant<AcceptedEvent, PrefillEvent, ScoreEvent, TokenEvent, FailedEvent>;

// Takes part in it: the engine's thread, which makes the events, and one other, which drains them.
class Generation : public engine::OutputSink,
                   public TurnListener,
                   public std::enable_shared_from_this<Generation> {
 public:
  // `wake` is called, on any thread, when there is something to drain again.
  static std::shared_ptr<Generation> Create(GenerationContext context, GenerationRequest request,
                                            std::function<void()> wake);

  // Queues the first choice of every prompt; the others follow when its prompt is computed, and so
  // cached.
  void Start();
  // Ends what still runs; nobody drains any more. Any thread, any time.
  void Cancel();
  // Ends what still runs, which is told as FinishReason::kAbort. Any thread, any time.
  void Abort();
  // What has come since the last call.
  std::vector<GenerationEvent> Drain();
  size_t sequences() const { return sequences_; }

  void OnPrefill(plan::SequenceId id, int64_t done, int64_t total) override;
  void OnScore(plan::SequenceId id, engine::ScoreOutput score) override;
  bool OnToken(plan::SequenceId id, const engine::TokenOutput& token) override;
  void OnFinish(plan::SequenceId id, engine::FinishReason reason,
                const engine::FinishInfo& info) override;
  void OnTurnEnd() override { wake_(); }

 private:
  // A sequence that the engine has.
  struct Stream {
    size_t sequence = 0;
    std::optional<text::IncrementalDetokenizer> detokenizer;
    text::StopMatcher stop;
    int64_t prompt_tokens = 0;
    int64_t tokens = 0;
    int64_t cached_tokens = 0;
    std::vector<int32_t> prompt;  // where its tokens are scored
    std::optional<int32_t> stop_token;
    PrefillClock clock;
    int64_t prefilled = 0;  // tokens, as of the last report
    double prefill_s = 0;   // and when it came
    std::vector<ChunkTime> chunks;
  };

  Generation(GenerationContext context, GenerationRequest request, std::function<void()> wake);

  void SubmitFirst(engine::Engine& engine);
  // From choice `first` on.
  void SubmitOthers(engine::Engine& engine, size_t prompt, int first);
  base::Status Submit(engine::Engine& engine, size_t sequence);
  void Fail(engine::Engine& engine, base::Status status);
  void AbortAll(engine::Engine& engine);
  // Of a report of OnPrefill; returns the seconds since the submission.
  double AddToClock(plan::SequenceId id, int64_t done, Stream& stream) const;
  bool IsStopToken(int32_t token) const;
  // True where whoever drains is to be woken: it has not been since it drained last.
  bool Add(GenerationEvent event);
  // On the engine's thread.
  void Push(GenerationEvent event);
  // Of a sequence that will not be submitted.
  void PushAborted(size_t sequence);
  void ReleaseIfDone();

  const GenerationContext context_;
  GenerationRequest request_;
  const std::function<void()> wake_;
  const size_t sequences_;

  // Of the engine's thread.
  engine::Engine* engine_ = nullptr;
  std::unordered_map<plan::SequenceId, Stream> streams_;
  std::vector<bool> others_submitted_;  // by prompt
  std::shared_ptr<Generation> itself_;  // while the engine knows it
  size_t pending_ = 0;                  // sequences that have not ended, submitted or not
  bool over_ = false;                   // cancelled or failed: nothing more is submitted
  bool aborted_ = false;                // on request

  std::mutex mutex_;
  std::vector<GenerationEvent> events_;
  bool cancelled_ = false;
};

}  // namespace longspan::server
