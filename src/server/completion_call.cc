// Requests of /v1/completions.
#include "server/call_parts.h"
#include "server/refused_fields.h"

namespace longspan::server {
namespace {

// The forms of "prompt": a text, token ids, or an array of either.
std::optional<CallError> ReadPrompt(const Json& prompt, bool add_special, const ServedModel& model,
                                    Call& call) {
  const auto wrong = [] {
    return CallError{base::InvalidArgument(
                         "'prompt' must be a string, an array of strings, an array of token ids, "
                         "or an array of such arrays"),
                     "prompt", "invalid_type"};
  };
  if (prompt.is_string()) {
    const std::string& text = prompt.get_ref<const std::string&>();
    if (call.echo) call.echo_text.push_back(text);
    return AddPrompt(text, add_special, model, call);
  }
  if (!prompt.is_array()) return wrong();
  if (prompt.empty() || prompt[0].is_number()) {
    auto ids = TokenIds(prompt);
    if (!ids) return wrong();
    if (call.echo) {
      auto text = model.tokenizer == nullptr
                      ? base::Result<std::string>(std::string())
                      : model.tokenizer->Decode(*ids, /*skip_special=*/false);
      if (!text.ok()) return CallError{text.status(), "prompt", "invalid_value"};
      call.echo_text.push_back(std::move(*text));
    }
    call.generation.prompts.push_back(std::move(*ids));
    return std::nullopt;
  }
  for (const Json& entry : prompt) {
    // One level: a prompt of prompts of prompts is none.
    const bool is_one =
        entry.is_string() || (entry.is_array() && !entry.empty() && entry[0].is_number());
    if (!is_one) return wrong();
    if (auto error = ReadPrompt(entry, add_special, model, call)) return error;
  }
  return std::nullopt;
}

}  // namespace

std::optional<CallError> ReadCompletionCall(const Json& request, const ServedModel& model,
                                            Call& call) {
  Fields fields(request);
  ReadOpenAiFields(fields, model, call);
  std::optional<int64_t> max_tokens;
  fields.Read("max_completion_tokens", max_tokens);
  fields.Read("max_tokens", max_tokens);
  CheckMaxTokens("max_tokens", max_tokens, fields);
  fields.Read("echo", call.echo);
  std::optional<int64_t> logprobs;
  // A boolean is what clients of chat completions write.
  if (const Json* member = fields.Find("logprobs"); member != nullptr && member->is_boolean()) {
    if (member->get<bool>()) logprobs = 0;
  } else {
    fields.Read("logprobs", logprobs);
  }
  if (logprobs && (*logprobs < 0 || *logprobs > 1000)) fields.Fail("logprobs", "must be 0 to 1000");
  bool add_special = true;
  fields.Read("add_special_tokens", add_special);
  RefuseAll(RefusedOfCompletions(), fields);
  const Json* prompt = fields.Find("prompt");
  if (auto error = ErrorOf(fields)) return error;
  if (logprobs) {
    call.logprobs = true;
    call.generation.common.sampling.top_logprobs = static_cast<int>(*logprobs);
  }
  if (prompt == nullptr)
    return CallError{base::InvalidArgument("the request has no 'prompt'"), "prompt",
                     "missing_required_parameter"};
  if (auto error = ReadPrompt(*prompt, add_special, model, call)) return error;
  if (call.logprobs && call.echo) ScorePrompts(0, call);
  constexpr int64_t kDefaultTokens = 16;  // OpenAI's
  return FinishCall(max_tokens.value_or(kDefaultTokens), model, call);
}

}  // namespace longspan::server
