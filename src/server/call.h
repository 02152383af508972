// A request of any of the generating endpoints, read and tokenised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/chat_format.h"
#include "server/generation.h"
#include "server/json.h"
#include "server/served_model.h"

namespace longspan::server {

// What is to be generated, and how it is to be told.
struct Call {
  std::string id;       // in responses
  int64_t created = 0;  // seconds since 1970
  GenerationRequest generation;
  std::vector<int64_t> prompt_tokens;  // of every prompt, also when these have been moved on

  const char* prompt_member = "prompt";  // of the request, for errors

  bool stream = false;
  bool include_usage = false;     // a last event with the usage
  bool continuous_usage = false;  // in every event
  bool logprobs = false;
  bool echo = false;                   // of completions: the prompt comes before the text
  std::vector<std::string> echo_text;  // of every prompt
  // Where log-probabilities of prompts are wanted: the prompts, and the first token that has one.
  std::vector<std::vector<int32_t>> scored_prompts;
  int64_t scored_from = 0;
  bool is_batch = false;          // of /generate: an array in, an array out
  bool incremental = false;       // of /generate: events hold what is new
  bool text_in_logprobs = false;  // of /generate
  ChatFormat chat;                // of chat completions

  size_t choices() const { return static_cast<size_t>(generation.choices); }
  size_t sequences() const { return prompt_tokens.size() * choices(); }
};

// Why a call was refused.
struct CallError {
  base::Status status;
  std::string param;  // the member at fault; empty where there is no one
  std::string code;
};

// Each reads a request's JSON and tokenises. Nothing where all went well.
std::optional<CallError> ReadCompletionCall(const Json& request, const ServedModel& model,
                                            Call& call);
std::optional<CallError> ReadChatCall(const Json& request, const ServedModel& model, Call& call);
std::optional<CallError> ReadNativeCall(const Json& request, const ServedModel& model, Call& call);

// Reads all of a chat but whether it fits: its prompt is in the call then, and in `max_tokens` what
// the request says of it.
std::optional<CallError> ReadChatPrompt(const Json& request, const ServedModel& model, Call& call,
                                        std::optional<int64_t>& max_tokens);

}  // namespace longspan::server
