// What the readers of calls share.
#pragma once

#include <optional>

#include "server/call.h"
#include "server/fields.h"

namespace longspan::server {

// The fields that all endpoints which generate have in common: sampling but for the seed, stops, n.
void ReadGenerationFields(Fields& fields, const ServedModel& model, Call& call);
// The fields that completions and chat completions have in common: those, the seed and streaming.
// What is known and not supported is refused by name where it would change the result.
void ReadOpenAiFields(Fields& fields, const ServedModel& model, Call& call);
// stream_options, whose own errors become those of `fields`.
void ReadStreamOptions(Fields& fields, Call& call);

// Draws a seed where the request has none.
void SetSeed(const std::optional<uint64_t>& seed, Call& call);
// Fails the member that is out of its range.
void CheckSamplingMembers(const spec::SamplingSpec& sampling, Fields& fields);
void CheckMaxTokens(const char* name, const std::optional<int64_t>& max_tokens, Fields& fields);
// {"token id": bias}.
void ReadLogitBias(Fields& fields, const ServedModel& model, Call& call);

// Sets the number of tokens to generate (nothing: as many as fit) and checks the whole against the
// limits of the engine.
std::optional<CallError> FinishCall(std::optional<int64_t> max_tokens, const ServedModel& model,
                                    Call& call);

// The error of the fields, if there is one.
std::optional<CallError> ErrorOf(const Fields& fields);

// Asks for the log-probabilities of the prompts' tokens from number `from` on, before FinishCall.
void ScorePrompts(int64_t from, Call& call);

// Tokenises one prompt into the call.
std::optional<CallError> AddPrompt(std::string_view text, bool add_special,
                                   const ServedModel& model, Call& call);

}  // namespace longspan::server
