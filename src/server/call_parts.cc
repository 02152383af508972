#include "server/call_parts.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "engine/request.h"
#include "server/refused_fields.h"

namespace longspan::server {
namespace {

constexpr int kMostChoices = 128;
// They are queued together: what the queue holds if nothing else is said.
constexpr int64_t kMostSequences = 1024;

uint64_t RandomSeed() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

// Of every sequence, looked for after each of its tokens.
constexpr size_t kMostStops = 64;
constexpr size_t kLongestStop = 1024;
constexpr size_t kMostStopTokens = 1024;

std::optional<CallError> CheckStops(const GenerationRequest& generation) {
  const auto error = [](const char* member, const std::string& sentence) {
    return CallError{base::InvalidArgument("{}", sentence), member, {}};
  };
  if (generation.stop.size() > kMostStops)
    return error("stop", fmt::format("'stop' has {} strings: give at most {}",
                                     generation.stop.size(), kMostStops));
  for (const std::string& stop : generation.stop)
    if (stop.size() > kLongestStop)
      return error("stop", fmt::format("a string of 'stop' has {} bytes: give at most {}",
                                       stop.size(), kLongestStop));
  const size_t tokens = generation.common.stop_tokens.size();
  if (tokens > kMostStopTokens)
    return error("stop_token_ids", fmt::format("'stop_token_ids' has {} ids: give at most {}",
                                               tokens, kMostStopTokens));
  return std::nullopt;
}

}  // namespace

void SetSeed(const std::optional<uint64_t>& seed, Call& call) {
  call.generation.common.sampling.seed = seed ? *seed : RandomSeed();
}

void CheckSamplingMembers(const spec::SamplingSpec& sampling, Fields& fields) {
  const base::Status status = spec::CheckSampling(sampling);
  if (status.ok()) return;
  // "top-p must be ..." is about the member top_p.
  const std::string& message = status.message();
  const size_t end = message.find(" must");
  std::string name = message.substr(0, end);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  fields.Fail(name.c_str(), end == std::string::npos ? message : message.substr(end + 1));
}

void CheckMaxTokens(const char* name, const std::optional<int64_t>& max_tokens, Fields& fields) {
  if (max_tokens && *max_tokens < 0) fields.Fail(name, "must not be negative");
}

void ReadStreamOptions(Fields& fields, Call& call) {
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object())
    return fields.Fail("stream_options", "must be an object", "invalid_type");
  Fields members(*options, "stream_options.");
  members.Read("include_usage", call.include_usage);
  members.Read("continuous_usage_stats", call.continuous_usage);
  members.Read("include_progress", call.generation.progress);
  fields.Adopt(members);
  if (!call.stream) {
    // Without a stream there is nothing to tell it in.
    call.include_usage = call.continuous_usage = call.generation.progress = false;
  }
}

void ReadLogitBias(Fields& fields, const ServedModel& model, Call& call) {
  const Json* bias = fields.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.Fail("logit_bias", "must be an object", "invalid_type");
  for (const auto& [key, value] : bias->items()) {
    int64_t token = -1;
    if (!key.empty() && key.size() <= 9 &&
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; }))
      token = std::stoll(key);
    if (token < 0 || token >= model.limits.vocab_size)
      return fields.Fail("logit_bias",
                         fmt::format("has the key '{}', which is no token id below {}", key,
                                     model.limits.vocab_size));
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100))
      return fields.Fail("logit_bias", "must hold numbers between -100 and 100");
    call.generation.common.sampling.logit_bias.emplace_back(static_cast<int32_t>(token),
                                                            value.get<float>());
  }
}

void ReadGenerationFields(Fields& fields, const ServedModel& model, Call& call) {
  GenerationRequest& generation = call.generation;
  spec::SamplingSpec& sampling = generation.common.sampling;
  fields.Read("temperature", sampling.temperature);
  fields.Read("top_p", sampling.top_p);
  fields.Read("top_k", sampling.top_k);
  fields.Read("min_p", sampling.min_p);
  fields.Read("frequency_penalty", sampling.frequency_penalty);
  fields.Read("presence_penalty", sampling.presence_penalty);
  fields.Read("repetition_penalty", sampling.repetition_penalty);
  sampling.top_k = std::max(0, sampling.top_k);  // some clients write -1 for all
  fields.Read("n", generation.choices);
  if (generation.choices < 1 || generation.choices > kMostChoices)
    fields.Fail("n", fmt::format("must be 1 to {}", kMostChoices));
  fields.Read("stop", generation.stop);
  fields.Read("stop_token_ids", generation.common.stop_tokens);
  fields.Read("ignore_eos", generation.common.ignore_end_tokens);
  fields.Read("skip_special_tokens", generation.skip_special);
  fields.Read("no_stop_trim", generation.keep_stop);
  ReadLogitBias(fields, model, call);
  CheckSamplingMembers(sampling, fields);
}

void ReadOpenAiFields(Fields& fields, const ServedModel& model, Call& call) {
  GenerationRequest& generation = call.generation;
  generation.common.sampling = model.sampling;
  ReadGenerationFields(fields, model, call);
  std::optional<uint64_t> seed;
  fields.Read("seed", seed);
  SetSeed(seed, call);
  fields.Read("include_stop_str_in_output", generation.keep_stop);
  fields.Read("stream", call.stream);
  fields.Read("rid", call.id);
  ReadStreamOptions(fields, call);

  int best_of = generation.choices;
  fields.Read("best_of", best_of);
  if (best_of != generation.choices)
    fields.Fail("best_of", "is not supported beyond 'n'", "unsupported_parameter");
  RefuseAll(RefusedOfOpenAi(), fields);
}

std::optional<CallError> ErrorOf(const Fields& fields) {
  if (fields.status().ok()) return std::nullopt;
  return CallError{fields.status(), fields.param(), fields.code()};
}

std::optional<CallError> AddPrompt(std::string_view text, bool add_special,
                                   const ServedModel& model, Call& call) {
  if (model.tokenizer == nullptr)
    return CallError{
        base::InvalidArgument("the model has no tokenizer: give the prompt as token ids"), {}, {}};
  auto ids = model.tokenizer->Encode(text, {.add_special = add_special});
  if (!ids.ok()) return CallError{ids.status(), {}, {}};
  call.generation.prompts.push_back(std::move(*ids));
  return std::nullopt;
}

void ScorePrompts(int64_t from, Call& call) {
  call.scored_prompts = call.generation.prompts;
  call.scored_from = from;
  call.generation.scored_from = std::max<int64_t>(1, from);
}

std::optional<CallError> FinishCall(std::optional<int64_t> max_tokens, const ServedModel& model,
                                    Call& call) {
  GenerationRequest& generation = call.generation;
  if (generation.prompts.empty())
    return CallError{base::InvalidArgument("there is no prompt: give at least one"),
                     call.prompt_member, "missing_required_parameter"};
  // The choices of a prompt wait for places as long as they must; the prompts are queued at once.
  if (static_cast<int64_t>(generation.prompts.size()) > model.most_queued)
    return CallError{
        base::InvalidArgument(
            "the request has {} prompts: at most {} at once, which is --max-queued-requests",
            generation.prompts.size(), model.most_queued),
        call.prompt_member,
        {}};
  if (static_cast<int64_t>(generation.sequences()) > kMostSequences)
    return CallError{base::InvalidArgument("the request asks for {} outputs: at most {} at once",
                                           generation.sequences(), kMostSequences),
                     "n",
                     {}};
  if (model.tokenizer == nullptr && !generation.stop.empty())
    return CallError{
        base::InvalidArgument("'stop' needs a tokenizer, which the model does not have"),
        "stop",
        {}};
  if (auto error = CheckStops(generation)) return error;
  // Each prompt leaves a room of its own: Generation cuts this to it.
  generation.common.max_tokens = max_tokens.value_or(model.limits.context_length);
  for (std::vector<int32_t>& prompt : generation.prompts) {
    call.prompt_tokens.push_back(static_cast<int64_t>(prompt.size()));
    engine::Request request = generation.common;
    request.max_tokens =
        std::min(request.max_tokens, RoomFor(call.prompt_tokens.back(), model.limits));
    request.prompt = std::move(prompt);
    const base::Status status = engine::CheckRequest(request, model.limits);
    prompt = std::move(request.prompt);
    if (status.ok()) continue;
    const bool too_long = static_cast<int64_t>(prompt.size()) >= model.limits.context_length ||
                          status.code() == base::StatusCode::kResourceExhausted;
    return CallError{{base::StatusCode::kInvalidArgument, status.message()},
                     call.prompt_member,
                     too_long ? "context_length_exceeded" : "invalid_value"};
  }
  return std::nullopt;
}

}  // namespace longspan::server
