#include "server/tool_style.h"

#include <utility>

#include <fmt/format.h>

#include "server/json.h"
#include "server/tool_marks.h"

namespace longspan::server {
namespace {

constexpr const char* kShown = "longspan_shown";
constexpr const char* kCalled = "longspan_called";
constexpr const char* kKey = "longspan_key";

// A question, a call and its result, with another function in the list of tools.
text::ChatRequest Example(bool null_content, bool text_arguments) {
  const Json arguments = {{kKey, "longspan_value"}};
  Json call = {{"id", "call00001"},
               {"type", "function"},
               {"function", {{"name", kCalled}, {"arguments", arguments}}}};
  if (text_arguments) call["function"]["arguments"] = Dump(arguments);
  text::ChatRequest request;
  request.messages = Json::array(
      {{{"role", "user"}, {"content", "q"}},
       {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({std::move(call)})}},
       {{"role", "tool"}, {"tool_call_id", "call00001"}, {"name", kCalled}, {"content", "r"}}});
  if (null_content) request.messages[1]["content"] = nullptr;
  request.tools =
      Json::array({{{"type", "function"},
                    {"function",
                     {{"name", kShown},
                      {"description", "d"},
                      {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}}});
  return request;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The call is there, its arguments are JSON and not another language's objects, and no "None" is.
bool IsGood(std::string_view text) {
  return Contains(text, kCalled) && Contains(text, kKey) &&
         !Contains(text, fmt::format("'{}'", kKey)) &&
         !Contains(text, fmt::format("\\\"{}", kKey)) && !Contains(text, "None");
}

// As it stands in a JSON string.
std::string Escaped(const std::string& name) {
  const std::string quoted = Dump(Json(name));
  return quoted.substr(1, quoted.size() - 2);
}

ToolSyntax SyntaxOfTokens(const text::Tokenizer& tokenizer) {
  if (tokenizer.TokenId("｜DSML｜")) return ToolSyntax::kDeepSeekV32;
  if (tokenizer.TokenId(kDeepSeekBegin)) return ToolSyntax::kDeepSeekV31;
  if (tokenizer.TokenId(kPythonTag)) return ToolSyntax::kLlama;
  return ToolSyntax::kHermes;
}

ToolSyntax SyntaxOf(std::string_view text, const text::Tokenizer& tokenizer) {
  if (Contains(text, kDsmlBegin)) return ToolSyntax::kDeepSeekV32;
  if (Contains(text, "function" + std::string(kDeepSeekSeparator))) return ToolSyntax::kDeepSeekV3;
  if (Contains(text, kDeepSeekSeparator)) return ToolSyntax::kDeepSeekV31;
  if (Contains(text, kHermesBegin)) return ToolSyntax::kHermes;
  if (Contains(text, fmt::format("\"name\": \"{}\", \"parameters\"", kCalled)))
    return ToolSyntax::kLlama;
  return SyntaxOfTokens(tokenizer);
}

}  // namespace

ToolStyle FindToolStyle(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer) {
  for (const bool null_content : {true, false}) {
    for (const bool text_arguments : {false, true}) {
      const auto text = chat_template.Render(Example(null_content, text_arguments));
      if (!text.ok() || !IsGood(*text)) continue;
      return {.syntax = SyntaxOf(*text, tokenizer),
              .shows_tools = Contains(*text, kShown),
              .null_content = null_content,
              .text_arguments = text_arguments};
    }
  }
  // It knows no calls; tools it may show all the same.
  text::ChatRequest request = Example(false, false);
  request.messages = Json::array({request.messages[0]});
  const auto text = chat_template.Render(request);
  return {.syntax = SyntaxOfTokens(tokenizer), .shows_tools = text.ok() && Contains(*text, kShown)};
}

std::string CallPrefix(ToolSyntax syntax, const std::string& function) {
  const bool any = function.empty();
  switch (syntax) {
    case ToolSyntax::kHermes:
      return fmt::format("{}\n{{\"name\": \"{}{}", kHermesBegin, Escaped(function),
                         any ? "" : "\", \"arguments\": ");
    case ToolSyntax::kLlama:
      return fmt::format("{{\"name\": \"{}{}", Escaped(function),
                         any ? "" : "\", \"parameters\": ");
    case ToolSyntax::kDeepSeekV3:
      return fmt::format("{}{}function{}{}{}", kDeepSeekBegin, kDeepSeekCall, kDeepSeekSeparator,
                         function, any ? "" : "\n```json\n");
    case ToolSyntax::kDeepSeekV31:
      return fmt::format("{}{}{}{}", kDeepSeekBegin, kDeepSeekCall, function,
                         any ? "" : kDeepSeekSeparator);
    case ToolSyntax::kDeepSeekV32:
      return fmt::format("{}\n{}{}{}", kDsmlBegin, kDsmlInvoke, function, any ? "" : "\">\n");
  }
  return {};
}

std::string CallEnd(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
      return std::string(kHermesEnd);
    case ToolSyntax::kDeepSeekV3:
    case ToolSyntax::kDeepSeekV31:
      return std::string(kDeepSeekCallEnd);
    case ToolSyntax::kDeepSeekV32:
      return std::string(kDsmlInvokeEnd);
    case ToolSyntax::kLlama:
      break;
  }
  return {};
}

std::string ToolInstructions(ToolSyntax syntax, const nlohmann::ordered_json& tools) {
  if (syntax != ToolSyntax::kDeepSeekV3) return {};
  std::string text = fmt::format(
      "## Tools\n\nYou can call functions. To call one, write exactly this and nothing else:\n"
      "{0}{1}function{2}NAME\n```json\n{{\"argument\": \"value\"}}\n```{3}{4}\n"
      "The block must be JSON that fits the function's parameters.\n\n### Functions\n",
      kDeepSeekBegin, kDeepSeekCall, kDeepSeekSeparator, kDeepSeekCallEnd, kDeepSeekEnd);
  for (const auto& tool : tools)
    text += fmt::format("\n```json\n{}\n```\n", Dump(tool["function"]));
  return text;
}

}  // namespace longspan::server
