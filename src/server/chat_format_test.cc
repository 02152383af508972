#include "server/chat_format.h"

#include <gtest/gtest.h>

#include "server/json.h"

namespace longspan::server {
namespace {

struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;

  bool operator==(const Parsed&) const = default;
};

// In pieces of that many bytes.
Parsed Parse(const ChatFormat& format, std::string_view text, size_t piece) {
  ChatParser parser(format);
  Parsed parsed;
  const auto add = [&](const std::vector<ChatPiece>& pieces) {
    for (const ChatPiece& part : pieces) {
      if (part.kind == ChatPiece::Kind::kContent) parsed.content += part.text;
      if (part.kind == ChatPiece::Kind::kReasoning) parsed.reasoning += part.text;
      if (part.kind == ChatPiece::Kind::kCall) parsed.calls.emplace_back(part.call_name, part.text);
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) add(parser.Append(text.substr(at, piece)));
  add(parser.Finish());
  EXPECT_EQ(parser.has_calls(), !parsed.calls.empty());
  return parsed;
}

// What a text is must not depend on how it comes.
void ExpectParsed(const ChatFormat& format, std::string_view text, const Parsed& expected) {
  for (size_t piece = 1; piece <= text.size() + 1; ++piece) {
    const Parsed parsed = Parse(format, text, piece);
    EXPECT_EQ(parsed.content, expected.content) << piece;
    EXPECT_EQ(parsed.reasoning, expected.reasoning) << piece;
    EXPECT_EQ(parsed.calls, expected.calls) << piece;
  }
}

TEST(ChatParserTest, PlainTextPassesAsItIs) {
  ExpectParsed({}, "  Hello <thin> world\n\n", {.content = "  Hello <thin> world\n\n"});
  ExpectParsed({}, "<tool_call>{}</tool_call>", {.content = "<tool_call>{}</tool_call>"});
}

TEST(ChatParserTest, ReasoningIsToldApart) {
  ExpectParsed({}, "<think>\nHm.\n</think>\n\nYes.\n", {.content = "Yes.\n", .reasoning = "\nHm."});
  ExpectParsed({.begins_in_reasoning = true}, "Hm, hm.</think>Yes",
               {.content = "Yes", .reasoning = "Hm, hm."});
  // Cut off by the limit of tokens.
  ExpectParsed({.begins_in_reasoning = true}, "Hm </thi", {.reasoning = "Hm </thi"});
  ExpectParsed({.reasoning = false}, "<think>Hm</think>Yes", {.content = "<think>Hm</think>Yes"});
}

TEST(ChatParserTest, CallsOfQwen) {
  const ChatFormat format = {.tools = true};
  ExpectParsed(format,
               "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
               "\"Bône\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
               {.content = "I look.", .calls = {{"weather", R"({"city":"Bône"})"}, {"now", "{}"}}});
  // The end of the text stands for that of the call.
  ExpectParsed(format, R"(<tool_call>{"name": "f", "arguments": {"a": [1, 2]}})",
               {.calls = {{"f", R"({"a":[1,2]})"}}});
  // No call is lost from sight because it cannot be read.
  ExpectParsed(format, "<tool_call>{\"name\": </tool_call> x",
               {.content = "<tool_call>{\"name\": </tool_call> x"});
  ExpectParsed({.tools = true, .one_call = true},
               R"(<tool_call>{"name":"f"}</tool_call><tool_call>{"name":"g"}</tool_call>)",
               {.calls = {{"f", "{}"}}});
}

TEST(ChatParserTest, ACallThatThePromptBegins) {
  ExpectParsed({.tools = true, .prefix = "<tool_call>\n{\"name\": \"f\", \"arguments\": "},
               "{\"a\": 1}}\n</tool_call>", {.calls = {{"f", R"({"a":1})"}}});
}

TEST(ChatParserTest, CallsOfDeepSeek) {
  const ChatFormat format = {.tools = true, .syntax = ToolSyntax::kDeepSeek};
  ExpectParsed(format,
               "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
               "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
               "<｜tool▁calls▁end｜>",
               {.content = "Well.", .calls = {{"f", R"({"a":1})"}, {"g", "{}"}}});
  ExpectParsed(
      format,
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
      "1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      {.calls = {{"f", R"({"a":1})"}}});
}

TEST(ChatParserTest, CallsOfLlama) {
  const ChatFormat format = {.tools = true, .syntax = ToolSyntax::kLlama};
  ExpectParsed(format, R"({"name": "f", "parameters": {"a": 1}})",
               {.calls = {{"f", R"({"a":1})"}}});
  ExpectParsed(format, R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"})",
               {.calls = {{"f", "{}"}, {"g", "{}"}}});
  ExpectParsed(format, "{x} is a set", {.content = "{x} is a set"});
  ExpectParsed(format, "Plain.", {.content = "Plain."});
  ExpectParsed(format, "In  plain\n\nwords. ", {.content = "In  plain\n\nwords. "});
}

}  // namespace
}  // namespace longspan::server
