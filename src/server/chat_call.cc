// Requests of /v1/chat/completions.
#include <algorithm>

#include "server/call_parts.h"

namespace longspan::server {
namespace {

CallError Wrong(const char* param, const std::string& what) {
  return {base::InvalidArgument("'{}' {}", param, what), param, {}};
}

// Templates take texts: the parts of a content are joined, each on a line of its own.
std::optional<CallError> FlattenContent(size_t index, Json& message) {
  Json& content = message["content"];
  if (content.is_null()) content = "";
  if (content.is_string()) return std::nullopt;
  if (!content.is_array())
    return Wrong("messages",
                 fmt::format("[{}].content must be a string or an array of parts", index));
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text)
      return Wrong("messages",
                   fmt::format("[{}].content has a part that is not supported: only parts "
                               "{{\"type\": \"text\", \"text\": ...}} are",
                               index));
    if (!text.empty()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  content = std::move(text);
  return std::nullopt;
}

// Arguments come as a text that holds JSON; templates print objects.
void ParseArguments(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    auto parsed = ParseJson(function["arguments"].get_ref<const std::string&>());
    if (parsed.ok() && parsed->is_object()) function["arguments"] = std::move(*parsed);
  }
}

std::optional<CallError> ReadMessages(const Json& request, text::ChatRequest& chat) {
  const auto found = request.find("messages");
  if (found == request.end() || !found->is_array() || found->empty())
    return Wrong("messages", "must be an array of at least one message");
  chat.messages = *found;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    Json& message = chat.messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return Wrong("messages", fmt::format("[{}] must be an object with a 'role'", i));
    // OpenAI's newer name, which templates do not know.
    if (message["role"] == "developer") message["role"] = "system";
    if (auto error = FlattenContent(i, message)) return error;
  }
  return std::nullopt;
}

// "auto", "none", "required", or {"type": "function", "function": {"name": ...}}. A call that is
// asked for is begun in the prompt, so that the model can only go on with it.
std::optional<CallError> ReadToolChoice(const Json& request, const Json& tools,
                                        ChatFormat& format) {
  const auto found = request.find("tool_choice");
  const Json choice = found == request.end() || found->is_null() ? Json("auto") : *found;
  if (choice == "none") {
    format.tools = false;
    return std::nullopt;
  }
  if (choice == "auto") return std::nullopt;
  std::string name;
  if (choice.is_object() && choice.contains("function") && choice["function"].is_object() &&
      choice["function"].contains("name") && choice["function"]["name"].is_string()) {
    name = choice["function"]["name"].get<std::string>();
    const bool known = std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
      return tool["function"]["name"] == name;
    });
    if (!known)
      return Wrong("tool_choice", fmt::format("names '{}', which is not in 'tools'", name));
  } else if (choice != "required") {
    return Wrong("tool_choice", "must be \"none\", \"auto\", \"required\" or name a function");
  }
  if (tools.empty()) return Wrong("tool_choice", "needs 'tools'");
  if (format.syntax != ToolSyntax::kHermes)
    return Wrong("tool_choice", "can only be \"none\" or \"auto\" with this model");
  format.prefix = "<tool_call>\n{\"name\": \"";
  if (!name.empty()) format.prefix += name + "\", \"arguments\": ";
  format.one_call = !name.empty();
  return std::nullopt;
}

std::optional<CallError> ReadTools(const Json& request, text::ChatRequest& chat, Call& call) {
  const auto found = request.find("tools");
  Json tools = found == request.end() || found->is_null() ? Json::array() : *found;
  if (!tools.is_array()) return Wrong("tools", "must be an array");
  for (const Json& tool : tools) {
    const bool is_function = tool.is_object() && tool.contains("function") &&
                             tool["function"].is_object() && tool["function"].contains("name") &&
                             tool["function"]["name"].is_string();
    if (!is_function)
      return Wrong("tools",
                   "must hold objects {\"type\": \"function\", \"function\": {\"name\": ...}}");
  }
  call.chat.tools = !tools.empty();
  if (auto error = ReadToolChoice(request, tools, call.chat)) return error;
  if (!call.chat.tools) return std::nullopt;
  // Their marks may be special tokens.
  if (call.chat.syntax != ToolSyntax::kHermes) call.generation.skip_special = false;
  if (const auto parallel = request.find("parallel_tool_calls");
      parallel != request.end() && *parallel == false)
    call.chat.one_call = true;
  // Nothing behind the only call would be told.
  if (call.chat.one_call && call.chat.syntax == ToolSyntax::kHermes)
    call.generation.stop.emplace_back("</tool_call>");
  chat.tools = std::move(tools);
  return std::nullopt;
}

ToolSyntax SyntaxOf(const text::Tokenizer& tokenizer) {
  if (tokenizer.TokenId("<｜tool▁calls▁begin｜>")) return ToolSyntax::kDeepSeek;
  if (tokenizer.TokenId("<|python_tag|>")) return ToolSyntax::kLlama;
  return ToolSyntax::kHermes;
}

void ReadTemplateFields(Fields& fields, text::ChatRequest& chat, Call& call) {
  fields.Read("add_generation_prompt", chat.add_generation_prompt);
  if (const Json* kwargs = fields.Find("chat_template_kwargs")) {
    if (!kwargs->is_object()) return fields.Fail("chat_template_kwargs", "must be an object");
    chat.kwargs = *kwargs;
  }
  std::string effort;
  fields.Read("reasoning_effort", effort);
  if (!effort.empty() && !chat.kwargs.contains("reasoning_effort"))
    chat.kwargs["reasoning_effort"] = effort;
  fields.Read("separate_reasoning", call.chat.reasoning);
  fields.Refuse("continue_final_message", false);
  fields.Refuse("chat_template");
  fields.Refuse("functions");
  fields.Refuse("function_call", "none");
  fields.Refuse("audio");
  fields.Refuse("modalities", Json::array({"text"}));
  fields.Refuse("web_search_options");
}

// The prompt's text.
base::Result<std::string> Render(const ServedModel& model, text::ChatRequest& chat) {
  text::ChatRequest parsed = chat;
  for (Json& message : parsed.messages) ParseArguments(message);
  auto text = model.chat_template->Render(parsed);
  // Some templates join the arguments to a text instead.
  if (!text.ok() && parsed.messages != chat.messages) return model.chat_template->Render(chat);
  return text;
}

}  // namespace

std::optional<CallError> ReadChatCall(const Json& request, const ServedModel& model, Call& call) {
  if (!model.chat_template || model.tokenizer == nullptr)
    return CallError{base::InvalidArgument("the model '{}' has no chat template: use "
                                           "/v1/completions",
                                           model.name),
                     {},
                     {}};
  call.prompt_member = "messages";
  Fields fields(request);
  ReadOpenAiFields(fields, model, call);
  std::optional<int64_t> max_tokens;
  fields.Read("max_tokens", max_tokens);
  fields.Read("max_completion_tokens", max_tokens);
  fields.Read("logprobs", call.logprobs);
  int top_logprobs = 0;
  fields.Read("top_logprobs", top_logprobs);
  if (top_logprobs < 0 || top_logprobs > 1000) fields.Fail("top_logprobs", "must be 0 to 1000");
  if (top_logprobs > 0 && !call.logprobs) fields.Fail("top_logprobs", "needs 'logprobs': true");
  fields.Refuse("echo", false);
  call.generation.common.sampling.top_logprobs = top_logprobs;
  text::ChatRequest chat;
  ReadTemplateFields(fields, chat, call);
  if (auto error = ErrorOf(fields)) return error;
  call.chat.syntax = SyntaxOf(*model.tokenizer);
  if (auto error = ReadMessages(request, chat)) return error;
  if (auto error = ReadTools(request, chat, call)) return error;

  base::Result<std::string> text = Render(model, chat);
  if (!text.ok())
    return CallError{
        text.status().WithContext("the chat template refuses the messages"), "messages", {}};
  const size_t visible = text->find_last_not_of(" \n");
  call.chat.begins_in_reasoning =
      std::string_view(*text).substr(0, visible + 1).ends_with("<think>");
  if (!call.chat.prefix.empty() && call.chat.begins_in_reasoning) {
    *text += "\n</think>\n\n";
    call.chat.begins_in_reasoning = false;
  }
  *text += call.chat.prefix;
  if (auto error = AddPrompt(*text, /*add_special=*/false, model, call)) return error;
  return FinishCall(max_tokens, model, call);
}

}  // namespace longspan::server
