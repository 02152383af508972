// What the engine gives back, as it happens.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/ids.h"
#include "plan/step_result.h"

namespace longspan::engine {

enum class FinishReason {
  kStop,    // an end or stop token, or the sink said so
  kLength,  // the wished number of tokens, or the context's end
  kAbort,   // taken back
};

// "stop", "length" or "abort".
const char* ReasonName(FinishReason reason);

struct TokenOutput {
  int32_t token = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top_logprobs;
};

struct ScoreOutput {
  int64_t position = 0;
  float next_logprob = 0;  // of the prompt's next token; meaningless at its last position
  // Of the likeliest next tokens, as many as the request's sampling.top_logprobs, best first.
  std::vector<std::pair<int32_t, float>> top_logprobs;
  std::vector<float> logits;
};

// How a sequence went. Seconds are since its request was submitted, on the engine's clock.
struct FinishInfo {
  double first_token_s = 0;  // or the end of the prompt where no token was asked for
  double finish_s = 0;
  double queue_s = 0;         // it waited so long for its start
  int64_t cached_tokens = 0;  // of the prompt: not computed, since an earlier sequence had them
};

// One computed slice of a step, with what each stage says of the step's time.
struct ComputedSlice {
  plan::SequenceId sequence;
  int64_t begin = 0;
  int64_t end = 0;
  bool prefill = false;
};

// What the leader did with a plan; nanoseconds on the engine's clock.
struct LeaderTiming {
  int64_t begin = 0;  // of making it
  int64_t made = 0;
  int64_t submitted = 0;  // given to the sender, and without loops to all ranks
  int64_t commit_begin = 0;
  int64_t committed = 0;         // its tokens, scores and pages are out
  std::vector<int64_t> reports;  // by rank: its result was taken up
};

struct StepRecord {
  plan::PlanNumber plan;
  std::vector<ComputedSlice> slices;
  std::vector<plan::StageTiming> stages;  // by rank: stages have one or several
  LeaderTiming leader;
};

// Receives what happens to sequences, on the thread that runs the engine, in order. Must outlive
// them.
class OutputSink {
 public:
  virtual ~OutputSink() = default;

  // The prompt's first `done` tokens are computed.
  virtual void OnPrefill(plan::SequenceId /*sequence*/, int64_t /*done*/, int64_t /*total*/) {}
  // What is handed over is the sink's to keep.
  // NOLINTBEGIN(performance-unnecessary-value-param)
  virtual void OnScore(plan::SequenceId /*sequence*/, ScoreOutput /*score*/) {}
  virtual void OnHidden(plan::SequenceId /*sequence*/, int32_t /*depth*/,
                        std::vector<float> /*values*/) {}
  // NOLINTEND(performance-unnecessary-value-param)
  // False ends the sequence here (a stop string was found).
  virtual bool OnToken(plan::SequenceId /*sequence*/, const TokenOutput& /*token*/) { return true; }
  virtual void OnFinish(plan::SequenceId /*sequence*/, FinishReason /*reason*/,
                        const FinishInfo& /*info*/) {}
};

}  // namespace longspan::engine
