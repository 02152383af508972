// What the formatters share.
#pragma once

#include <string>
#include <vector>

#include "engine/output.h"
#include "server/call.h"
#include "server/generation.h"
#include "server/json.h"
#include "text/tokenizer.h"

namespace longspan::server {

// Appends "data: JSON" and an empty line.
void AppendEvent(const Json& json, std::string& out);
void AppendDone(std::string& out);

// Counts tokens over the sequences of a call. A prompt counts once for all its choices.
class Usage {
 public:
  explicit Usage(const Call& call);
  void OnToken(const TokenEvent& event);
  void OnFinish(const TokenEvent& event);
  // OpenAI's usage object.
  Json ToJson() const;
  void AddReasoning(int64_t tokens) { reasoning_ += tokens; }
  // Of an event of a stream: what has been counted if every event has it, null if the last has.
  void AddTo(const Call& call, Json& event) const;

 private:
  size_t choices_;
  int64_t prompt_ = 0;
  int64_t cached_ = 0;
  int64_t completion_ = 0;
  int64_t reasoning_ = 0;
};

// What the events of a stream with one choice each have in common, rendered once for all of them.
class EventFrame {
 public:
  // `head`: the members before "choices".
  explicit EventFrame(const Json& head);
  void Append(const Json& choice, const Call& call, const Usage& usage, std::string& out) const;

 private:
  std::string begin_;
};

// The last events of a stream: the usage where the call asks for it, in an event with this head and
// without choices, and [DONE].
void AppendStreamEnd(const Call& call, const Usage& usage, Json head, std::string& out);

// The token as a text, and as bytes. As OpenAI writes them, tokens that are no whole characters are
// "bytes:\xe2\x82"; ids without a tokenizer or outside its vocabulary are "token_id:N".
std::string TokenName(const text::Tokenizer* tokenizer, int32_t token);
// Characters that begin in the token.
int64_t TokenCharacters(const text::Tokenizer* tokenizer, int32_t token);
Json TokenBytesJson(const text::Tokenizer* tokenizer, int32_t token);

// The event's stop string or token, or null.
Json MatchedStop(const Finish& finish);

// Progress of a prefill, as streams tell it.
Json ProgressJson(const PrefillEvent& event);

// JSON knows no infinity: very unlikely tokens have the lowest finite value.
double FiniteLogprob(float logprob);

}  // namespace longspan::server
