// Requests of /generate.
#include <algorithm>

#include "server/call_parts.h"
#include "server/refused_fields.h"

namespace longspan::server {
namespace {

constexpr int64_t kDefaultTokens = 128;

void ReadSamplingParams(Fields& fields, const ServedModel& model, Call& call,
                        std::optional<int64_t>& max_tokens) {
  max_tokens = kDefaultTokens;
  fields.Read("max_new_tokens", max_tokens);
  CheckMaxTokens("max_new_tokens", max_tokens, fields);
  ReadGenerationFields(fields, model, call);
  std::optional<uint64_t> seed;
  fields.Read("seed", seed);
  fields.Read("sampling_seed", seed);
  SetSeed(seed, call);
  RefuseAll(RefusedOfSamplingParams(), fields);
}

std::optional<CallError> ReadTexts(const Json& text, const ServedModel& model, Call& call) {
  if (text.is_string()) return AddPrompt(text.get_ref<const std::string&>(), true, model, call);
  call.is_batch = true;
  for (const Json& entry : text) {
    if (!entry.is_string())
      return CallError{base::InvalidArgument("'text' must hold strings only"), "text",
                       "invalid_type"};
    if (auto error = AddPrompt(entry.get_ref<const std::string&>(), true, model, call))
      return error;
  }
  return std::nullopt;
}

std::optional<CallError> ReadIds(const Json& ids, Call& call) {
  const bool is_batch = ids.is_array() && !ids.empty() && ids[0].is_array();
  call.is_batch = is_batch;
  std::optional<std::vector<int32_t>> list;
  for (size_t i = 0; i < (is_batch ? ids.size() : 1); ++i) {
    const Json& entry = is_batch ? ids[i] : ids;
    list = entry.is_array() ? TokenIds(entry) : std::nullopt;
    if (!list)
      return CallError{base::InvalidArgument(
                           "'input_ids' must be an array of token ids, or an array of such arrays"),
                       "input_ids", "invalid_type"};
    call.generation.prompts.push_back(std::move(*list));
  }
  return std::nullopt;
}

}  // namespace

std::optional<CallError> ReadNativeCall(const Json& request, const ServedModel& model, Call& call) {
  Fields fields(request);
  call.generation.common.sampling = model.sampling;
  std::optional<int64_t> max_tokens;
  static const Json kNone = Json::object();
  const Json* params = fields.Find("sampling_params");
  if (params != nullptr && !params->is_object())
    return CallError{base::InvalidArgument("'sampling_params' must be an object: one for all of a "
                                           "batch"),
                     "sampling_params", "invalid_type"};
  Fields sampling(params == nullptr ? kNone : *params, "sampling_params.");
  ReadSamplingParams(sampling, model, call, max_tokens);
  if (auto error = ErrorOf(sampling)) return error;

  fields.Read("stream", call.stream);
  ReadStreamOptions(fields, call);
  fields.Read("incremental_streaming_output", call.incremental);
  fields.Read("return_logprob", call.logprobs);
  fields.Read("return_text_in_logprobs", call.text_in_logprobs);
  fields.Read("rid", call.id);
  int top_logprobs = 0;
  fields.Read("top_logprobs_num", top_logprobs);
  if (top_logprobs < 0 || top_logprobs > 1000) fields.Fail("top_logprobs_num", "must be 0 to 1000");
  if (call.logprobs) call.generation.common.sampling.top_logprobs = top_logprobs;
  int64_t logprob_start = -1;
  fields.Read("logprob_start_len", logprob_start);
  if (logprob_start < -1) fields.Fail("logprob_start_len", "must be -1 (none) or more");
  RefuseAll(RefusedOfGenerate(), fields);
  const Json* text = fields.Find("text");
  const Json* ids = fields.Find("input_ids");
  if (auto error = ErrorOf(fields)) return error;
  call.prompt_member = text != nullptr ? "text" : "input_ids";
  if ((text == nullptr) == (ids == nullptr))
    return CallError{base::InvalidArgument("give either 'text' or 'input_ids'"), "text",
                     "missing_required_parameter"};
  if (text != nullptr && !text->is_string() && !text->is_array())
    return CallError{base::InvalidArgument("'text' must be a string or an array of strings"),
                     "text", "invalid_type"};
  if (auto error = text != nullptr ? ReadTexts(*text, model, call) : ReadIds(*ids, call))
    return error;
  if (call.logprobs && logprob_start >= 0) ScorePrompts(logprob_start, call);
  return FinishCall(max_tokens, model, call);
}

}  // namespace longspan::server
