#include "server/openapi_members.h"

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/refused_fields.h"

namespace longspan::server {
namespace {

struct Member {
  const char* name;  // "stream_options.include_usage": of that object; "!" behind it: required
  const char* type;  // JSON's, or several with bars between
  const char* about;
};

using Members = std::vector<Member>;

// Of /v1/completions and /v1/chat/completions.
Members OpenAiMembers() {
  return {
      {"model", "string", "Ignored: there is one model."},
      {"max_tokens", "integer", "Most tokens to generate; 0: only the prompt is computed."},
      {"max_completion_tokens", "integer", "The same."},
      {"temperature", "number", "0: the likeliest token."},
      {"top_p", "number", "Draws from the likeliest tokens of so much probability together."},
      {"top_k", "integer", "Draws from so many of the likeliest tokens; 0 or -1: all."},
      {"min_p", "number", "Drops what is below this share of the best probability."},
      {"n", "integer", "Choices for every prompt, 1 to 128."},
      {"best_of", "integer", "As 'n', or left out."},
      {"seed", "integer", "The same seed draws the same tokens."},
      {"stop", "string|array", "Strings that end the text and are not part of it."},
      {"stop_token_ids", "array|integer", "Tokens that end the text."},
      {"ignore_eos", "boolean", "Goes on behind the model's own end."},
      {"skip_special_tokens", "boolean", "Leaves special tokens out of the text [true]."},
      {"include_stop_str_in_output", "boolean", "Keeps what ended the text."},
      {"no_stop_trim", "boolean", "The same."},
      {"frequency_penalty", "number", "For every time that a token was generated."},
      {"presence_penalty", "number", "Once for tokens that were generated."},
      {"repetition_penalty", "number", "Factor on tokens of prompt and output; 1: none."},
      {"logit_bias", "object", "{\"token id\": number between -100 and 100}."},
      {"add_special_tokens", "boolean", "Puts the tokenizer's own tokens around the prompt."},
      {"stream", "boolean", "Answers as it is generated."},
      {"stream_options", "object", "What streams tell besides."},
      {"stream_options.include_usage", "boolean", "A last event with the usage."},
      {"stream_options.continuous_usage_stats", "boolean", "The usage in every event."},
      {"stream_options.include_progress", "boolean", "How the prefill gets on."},
      {"rid", "string", "The response's id, to abort the request by."},
  };
}

Members With(Members members, const Members& others) {
  members.insert(members.end(), others.begin(), others.end());
  return members;
}

Members CompletionMembers() {
  return With({{"prompt!", "string|array", "A text, token ids, or an array of either."},
               {"logprobs", "integer|boolean", "Log-probabilities, with so many alternatives."},
               {"echo", "boolean", "The prompt before the text, and among its log-probabilities."}},
              OpenAiMembers());
}

Members ChatMembers() {
  return With(
      {{"messages!", "array", "Objects with role and content: a string, or parts of type text."},
       {"logprobs", "boolean", "Log-probabilities of the tokens."},
       {"top_logprobs", "integer", "Alternatives to each; needs 'logprobs'."},
       {"tools", "array", "Functions that the model may call."},
       {"tool_choice", "string|object", "auto, none, required, or one function by its name."},
       {"parallel_tool_calls", "boolean", "false: at most one call."},
       {"function_call", "string", "none or auto; use 'tool_choice'."},
       {"chat_template_kwargs", "object", "Variables of the template, as enable_thinking."},
       {"reasoning_effort", "string", "A variable of the template."},
       {"separate_reasoning", "boolean", "Reasoning apart from the answer [true]."},
       {"add_generation_prompt", "boolean", "Lets the template begin the answer [true]."}},
      OpenAiMembers());
}

Members GenerateMembers() {
  return {
      {"text", "string|array", "A prompt, or several; or input_ids."},
      {"input_ids", "array", "The token ids of a prompt, or of several."},
      {"sampling_params", "object", "How tokens are chosen."},
      {"sampling_params.max_new_tokens", "integer", "Most tokens to generate [128]."},
      {"sampling_params.temperature", "number", "0: the likeliest token."},
      {"sampling_params.top_p", "number", "As in completions."},
      {"sampling_params.top_k", "integer", "As in completions."},
      {"sampling_params.min_p", "number", "As in completions."},
      {"sampling_params.frequency_penalty", "number", "As in completions."},
      {"sampling_params.presence_penalty", "number", "As in completions."},
      {"sampling_params.repetition_penalty", "number", "As in completions."},
      {"sampling_params.seed", "integer", "The same seed draws the same tokens."},
      {"sampling_params.sampling_seed", "integer", "The same."},
      {"sampling_params.n", "integer", "Outputs for every prompt, 1 to 128."},
      {"sampling_params.stop", "string|array", "Strings that end the text."},
      {"sampling_params.stop_token_ids", "array|integer", "Tokens that end the text."},
      {"sampling_params.ignore_eos", "boolean", "Goes on behind the model's own end."},
      {"sampling_params.skip_special_tokens", "boolean", "Leaves special tokens out [true]."},
      {"sampling_params.no_stop_trim", "boolean", "Keeps what ended the text."},
      {"sampling_params.logit_bias", "object", "As in completions."},
      {"stream", "boolean", "Answers as it is generated."},
      {"stream_options", "object", "What streams tell besides."},
      {"stream_options.include_usage", "boolean", "Without effect: meta_info has the numbers."},
      {"stream_options.continuous_usage_stats", "boolean", "Likewise."},
      {"stream_options.include_progress", "boolean", "How the prefill gets on."},
      {"incremental_streaming_output", "boolean", "Events hold what is new, not all so far."},
      {"return_logprob", "boolean", "Log-probabilities of the tokens."},
      {"logprob_start_len", "integer", "And of the prompt's from this one on; -1: none of them."},
      {"top_logprobs_num", "integer", "Alternatives to each."},
      {"return_text_in_logprobs", "boolean", "The tokens' texts beside their ids."},
      {"rid", "string", "The response's id, to abort the request by."},
  };
}

Members TokenizeMembers() {
  return {
      {"prompt", "string|array", "A text, or several; or messages."},
      {"text", "string|array", "The same."},
      {"messages", "array", "A conversation; all members of chat completions count, too."},
      {"add_special_tokens", "boolean", "Puts the tokenizer's own tokens around a text [true]."},
      {"return_token_strs", "boolean", "The tokens' texts, too."}};
}

Members DetokenizeMembers() {
  return {{"tokens!", "array", "Token ids, or arrays of them."},
          {"skip_special_tokens", "boolean", "Leaves special tokens out [true]."}};
}

Members AbortMembers() {
  return {{"rid", "string", "The id of a response, or the 'rid' of a request."},
          {"abort_all", "boolean", "Ends all requests."}};
}

// Null counts as not given, so it has every type.
Json TypeOf(std::string_view types) {
  Json list = Json::array();
  while (!types.empty()) {
    const size_t end = types.find('|');
    list.push_back(std::string(types.substr(0, end)));
    types.remove_prefix(end == std::string_view::npos ? types.size() : end + 1);
  }
  list.push_back("null");
  return list;
}

// The schema that holds a member, and the member's own name in it.
std::pair<Json*, std::string> PlaceOf(Json& schema, std::string name) {
  Json* place = &schema;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.')) {
    place = &(*place)["properties"][name.substr(0, dot)];
    name.erase(0, dot + 1);
  }
  return {place, std::move(name)};
}

void AddRefused(std::span<const RefusedField> refused, const std::string& path, Json& schema) {
  for (const RefusedField& field : refused) {
    const auto [place, name] = PlaceOf(schema, path + field.name);
    const bool has_neutral = std::string_view(field.neutral) != "null";
    (*place)["properties"][name] = {
        {"description",
         has_neutral ? fmt::format("Not supported: refused unless null or {}.", field.neutral)
                     : std::string("Not supported: refused unless null or empty.")},
        {"x-unsupported", true}};
  }
}

Json Schema(const Members& members,
            std::initializer_list<std::span<const RefusedField>> refused = {}) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  for (const Member& member : members) {
    auto [place, name] = PlaceOf(schema, member.name);
    if (name.ends_with('!')) {
      name.pop_back();
      required.push_back(name);
    }
    (*place)["properties"][name] = {{"description", member.about}, {"type", TypeOf(member.type)}};
  }
  for (const auto& list : refused) AddRefused(list, "", schema);
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

}  // namespace

Json RequestSchemas() {
  Json generate = Schema(GenerateMembers(), {RefusedOfGenerate()});
  AddRefused(RefusedOfSamplingParams(), "sampling_params.", generate);
  return {{"CompletionRequest",
           Schema(CompletionMembers(), {RefusedOfOpenAi(), RefusedOfCompletions()})},
          {"ChatCompletionRequest", Schema(ChatMembers(), {RefusedOfOpenAi(), RefusedOfChat()})},
          {"GenerateRequest", std::move(generate)},
          {"TokenizeRequest", Schema(TokenizeMembers())},
          {"DetokenizeRequest", Schema(DetokenizeMembers())},
          {"AbortRequest", Schema(AbortMembers())}};
}

}  // namespace longspan::server
