// Requests of /v1/chat/completions.
#include <algorithm>

#include "server/call_parts.h"
#include "server/refused_fields.h"

namespace longspan::server {
namespace {

// `what` may begin with the place in the member: "[0].role must ...".
CallError Wrong(const char* param, const std::string& what, const char* code = "invalid_value") {
  const size_t place = what.starts_with('[') ? what.find(' ') : 0;
  return {base::InvalidArgument("'{}{}' {}", param, what.substr(0, place),
                                what.substr(place == 0 ? 0 : place + 1)),
          param, code};
}

bool HasCalls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

// Templates take texts: the parts of a content are joined, each on a line of its own.
std::optional<CallError> FlattenContent(size_t index, Json& message) {
  Json& content = message["content"];
  if (content.is_null()) content = "";
  if (content.is_string()) return std::nullopt;
  if (!content.is_array())
    return Wrong("messages",
                 fmt::format("[{}].content must be a string or an array of parts", index),
                 "invalid_type");
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text)
      return Wrong("messages",
                   fmt::format("[{}].content has a part that is not supported: only parts "
                               "{{\"type\": \"text\", \"text\": ...}} are",
                               index),
                   "unsupported_parameter");
    if (!text.empty()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  content = std::move(text);
  return std::nullopt;
}

// Gives the calls of an earlier turn the form that the template wants. OpenAI's arguments are a
// text that holds JSON.
void ShapeCalls(const ToolStyle& style, Json& message) {
  if (!HasCalls(message)) return;
  // FlattenContent has made it a text.
  if (style.null_content && message["content"].get_ref<const std::string&>().empty())
    message["content"] = nullptr;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end()) continue;
    if (style.text_arguments) {
      if (!arguments->is_string()) *arguments = Dump(*arguments);
    } else if (arguments->is_string()) {
      auto parsed = ParseJson(arguments->get_ref<const std::string&>());
      if (parsed.ok() && parsed->is_object()) *arguments = std::move(*parsed);
    }
  }
}

std::optional<CallError> ReadMessages(const Fields& fields, const ToolStyle& style,
                                      text::ChatRequest& chat) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr)
    return Wrong("messages", "is missing: give an array of at least one message",
                 "missing_required_parameter");
  if (!messages->is_array() || messages->empty())
    return Wrong("messages", "must be an array of at least one message", "invalid_type");
  chat.messages = *messages;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    Json& message = chat.messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return Wrong("messages", fmt::format("[{}] must be an object with a 'role'", i));
    // OpenAI's newer name, which templates do not know.
    if (message["role"] == "developer") message["role"] = "system";
    if (auto error = FlattenContent(i, message)) return error;
    ShapeCalls(style, message);
  }
  return std::nullopt;
}

// "auto", "none", "required", or {"type": "function", "function": {"name": ...}}. A call that is
// asked for is begun in the prompt, so that the model can only go on with it.
std::optional<CallError> ReadToolChoice(const Fields& fields, const Json& tools,
                                        ChatFormat& format) {
  const Json* found = fields.Find("tool_choice");
  const Json choice = found == nullptr ? Json("auto") : *found;
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
    if (!known || name.empty())
      return Wrong("tool_choice", fmt::format("names '{}', which is not in 'tools'", name));
  } else if (choice != "required") {
    return Wrong("tool_choice", "must be \"none\", \"auto\", \"required\" or name a function");
  }
  if (tools.empty()) return Wrong("tool_choice", "needs 'tools'");
  format.prefix = CallPrefix(format.syntax, name);
  format.one_call = !name.empty();
  return std::nullopt;
}

std::optional<CallError> CheckTools(const Json& tools) {
  if (!tools.is_array()) return Wrong("tools", "must be an array", "invalid_type");
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const bool is_function = tool.is_object() && tool.contains("function") &&
                             tool["function"].is_object() && tool["function"].contains("name") &&
                             tool["function"]["name"].is_string();
    if (!is_function)
      return Wrong("tools",
                   "must hold objects {\"type\": \"function\", \"function\": {\"name\": ...}}");
    const auto strict = tool["function"].find("strict");
    if (strict != tool["function"].end() && *strict == true)
      return Wrong("tools",
                   fmt::format("[{}].function.strict is not supported: leave it out, or give "
                               "false; arguments are not bound to the schema",
                               i),
                   "unsupported_parameter");
  }
  return std::nullopt;
}

// Tells of the tools in the system message where the template does not show them.
std::optional<CallError> ShowTools(const ToolStyle& style, Json tools, text::ChatRequest& chat) {
  if (style.shows_tools) {
    chat.tools = std::move(tools);
    return std::nullopt;
  }
  const std::string instructions = ToolInstructions(style.syntax, tools);
  if (instructions.empty())
    return Wrong("tools", "is not supported: the model's chat template does not show tools",
                 "unsupported_parameter");
  if (chat.messages[0]["role"] == "system") {
    chat.messages[0]["content"].get_ref<std::string&>() += "\n\n" + instructions;
  } else {
    chat.messages.insert(chat.messages.begin(),
                         Json{{"role", "system"}, {"content", instructions}});
  }
  return std::nullopt;
}

// Their marks may be special tokens, which are text then.
bool MarksAreSpecial(const text::Tokenizer& tokenizer, ToolSyntax syntax) {
  if (syntax != ToolSyntax::kHermes) return true;
  const auto mark = tokenizer.TokenId("<tool_call>");
  return mark && tokenizer.IsSpecial(*mark);
}

std::optional<CallError> ReadTools(Fields& fields, const ServedModel& model,
                                   text::ChatRequest& chat, Call& call) {
  const Json* found = fields.Find("tools");
  Json tools = found == nullptr ? Json::array() : *found;
  if (auto error = CheckTools(tools)) return error;
  call.chat.tools = !tools.empty();
  call.chat.syntax = model.tool_style.syntax;
  if (auto error = ReadToolChoice(fields, tools, call.chat)) return error;
  bool parallel = true;
  fields.Read("parallel_tool_calls", parallel);
  if (auto error = ErrorOf(fields)) return error;
  if (!call.chat.tools) return std::nullopt;
  if (!parallel) call.chat.one_call = true;
  if (MarksAreSpecial(*model.tokenizer, call.chat.syntax)) call.generation.skip_special = false;
  // Nothing behind the only call would be told.
  if (const std::string end = CallEnd(call.chat.syntax); call.chat.one_call && !end.empty())
    call.generation.stop.push_back(end);
  return ShowTools(model.tool_style, std::move(tools), chat);
}

void ReadTemplateFields(Fields& fields, text::ChatRequest& chat, Call& call) {
  fields.Read("add_generation_prompt", chat.add_generation_prompt);
  if (const Json* kwargs = fields.Find("chat_template_kwargs")) {
    if (!kwargs->is_object())
      return fields.Fail("chat_template_kwargs", "must be an object", "invalid_type");
    chat.kwargs = *kwargs;
  }
  std::string effort;
  fields.Read("reasoning_effort", effort);
  if (!effort.empty() && !chat.kwargs.contains("reasoning_effort"))
    chat.kwargs["reasoning_effort"] = effort;
  fields.Read("separate_reasoning", call.chat.reasoning);
  RefuseAll(RefusedOfChat(), fields);
  // Both of its plain values say nothing where there are no functions.
  if (const Json* choice = fields.Find("function_call");
      choice != nullptr && *choice != "none" && *choice != "auto")
    fields.Fail("function_call", "is not supported: use 'tools' and 'tool_choice'",
                "unsupported_parameter");
}

void ReadLogprobs(Fields& fields, Call& call) {
  fields.Read("logprobs", call.logprobs);
  int top_logprobs = 0;
  fields.Read("top_logprobs", top_logprobs);
  if (top_logprobs < 0 || top_logprobs > 1000) fields.Fail("top_logprobs", "must be 0 to 1000");
  if (top_logprobs > 0 && !call.logprobs) fields.Fail("top_logprobs", "needs 'logprobs': true");
  call.generation.common.sampling.top_logprobs = top_logprobs;
}

}  // namespace

std::optional<CallError> ReadChatPrompt(const Json& request, const ServedModel& model, Call& call,
                                        std::optional<int64_t>& max_tokens) {
  if (!model.chat_template || model.tokenizer == nullptr)
    return CallError{base::InvalidArgument("the model '{}' has no chat template: use "
                                           "/v1/completions",
                                           model.name),
                     {},
                     "no_chat_template"};
  call.prompt_member = "messages";
  Fields fields(request);
  ReadOpenAiFields(fields, model, call);
  fields.Read("max_tokens", max_tokens);
  fields.Read("max_completion_tokens", max_tokens);
  CheckMaxTokens("max_tokens", max_tokens, fields);
  ReadLogprobs(fields, call);
  bool add_special = false;
  fields.Read("add_special_tokens", add_special);
  text::ChatRequest chat;
  ReadTemplateFields(fields, chat, call);
  if (auto error = ErrorOf(fields)) return error;
  if (auto error = ReadMessages(fields, model.tool_style, chat)) return error;
  if (auto error = ReadTools(fields, model, chat, call)) return error;

  base::Result<std::string> text = model.chat_template->Render(chat);
  if (!text.ok())
    return CallError{text.status().WithContext("the chat template refuses the messages"),
                     "messages", "invalid_value"};
  const size_t visible = text->find_last_not_of(" \n");
  call.chat.begins_in_reasoning =
      std::string_view(*text).substr(0, visible + 1).ends_with("<think>");
  if (!call.chat.prefix.empty() && call.chat.begins_in_reasoning) {
    *text += "\n</think>\n\n";
    call.chat.begins_in_reasoning = false;
  }
  *text += call.chat.prefix;
  return AddPrompt(*text, add_special, model, call);
}

std::optional<CallError> ReadChatCall(const Json& request, const ServedModel& model, Call& call) {
  std::optional<int64_t> max_tokens;
  if (auto error = ReadChatPrompt(request, model, call, max_tokens)) return error;
  return FinishCall(max_tokens, model, call);
}

}  // namespace longspan::server
