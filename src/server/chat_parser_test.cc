#include "server/chat_parser.h"

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
      if (part.kind == ChatPiece::Kind::kCall) parsed.calls.emplace_back(part.text, "");
      if (part.kind == ChatPiece::Kind::kArguments) parsed.calls.back().second += part.text;
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
  ExpectParsed({.tools = true, .begins_in_reasoning = true},
               "Hm</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
               {.reasoning = "Hm", .calls = {{"f", "{}"}}});
}

TEST(ChatParserTest, CallsOfQwen) {
  const ChatFormat format = {.tools = true};
  ExpectParsed(
      format,
      "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Bône }\\\"\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
      {.content = "I look.", .calls = {{"weather", R"({"city": "Bône }\""})"}, {"now", "{}"}}});
  // The end of the text stands for that of the call.
  ExpectParsed(format, R"(<tool_call>{"name": "f", "arguments": {"a": [1, 2]}})",
               {.calls = {{"f", R"({"a": [1, 2]})"}}});
  // Members in another order, others between, arguments as a text.
  ExpectParsed(format, R"(<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>)",
               {.calls = {{"f", R"({"a":1})"}}});
  ExpectParsed(format,
               R"(<tool_call>{"type": "function", "name": "f", "arguments": {"a": 1}}</tool_call>)",
               {.calls = {{"f", R"({"a": 1})"}}});
  ExpectParsed(format, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)",
               {.calls = {{"f", R"({"a": 1})"}}});
  // No call is lost from sight because it cannot be read.
  ExpectParsed(format, "<tool_call>{\"name\": </tool_call> x",
               {.content = "<tool_call>{\"name\": </tool_call> x"});
  ExpectParsed(format, "<tool_call>", {.content = "<tool_call>"});
  // Cut off by the limit of tokens.
  ExpectParsed(format, R"(<tool_call>{"name": "f", "arguments": {"a": "lo)",
               {.calls = {{"f", R"({"a": "lo)"}}});
  ExpectParsed({.tools = true, .one_call = true},
               R"(<tool_call>{"name":"f"}</tool_call><tool_call>{"name":"g"}</tool_call>)",
               {.calls = {{"f", "{}"}}});
}

TEST(ChatParserTest, ArgumentsComeAsTheyAreWritten) {
  ChatParser parser({.tools = true});
  std::vector<ChatPiece> pieces =
      parser.Append(R"(<tool_call>{"name": "f", "arguments": {"text": "lo)");
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].text, "f");
  EXPECT_EQ(pieces[1].text, R"({"text": "lo)");
  pieces = parser.Append("ng");
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].kind, ChatPiece::Kind::kArguments);
  EXPECT_EQ(pieces[0].text, "ng");
}

// No byte is looked at for every token that follows it.
TEST(ChatParserTest, LongCallsTakeTimeInProportion) {
  for (const ChatFormat& format :
       {ChatFormat{.tools = true, .prefix = "<tool_call>"},
        ChatFormat{.tools = true, .syntax = ToolSyntax::kLlama},
        ChatFormat{.tools = true,
        .syntax = ToolSyntax::kDeepSeekV32,
        .prefix = "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\">"}}) {
    ChatParser parser(format);
    const bool is_markup = format.syntax == ToolSyntax::kDeepSeekV32;
    parser.Append(is_markup ? "<｜DSML｜parameter name=\"a\" string=\"true\">" : R"({"note": ")");
    // Its square would take minutes.
    for (int i = 0; i < 300'000; ++i) parser.Append("word ");
    std::vector<ChatPiece> pieces = parser.Append(
        is_markup ? "</｜DSML｜parameter></｜DSML｜invoke>" : R"(", "name": "f"}</tool_call>)");
    ASSERT_GE(pieces.size(), 1u);
    const bool has_call = parser.has_calls();
    EXPECT_TRUE(has_call);
  }
}

TEST(ChatParserTest, ACallThatThePromptBegins) {
  ExpectParsed({.tools = true, .prefix = "<tool_call>\n{\"name\": \"f\", \"arguments\": "},
               "{\"a\": 1}}\n</tool_call>", {.calls = {{"f", R"({"a": 1})"}}});
  ExpectParsed({.tools = true,
                .syntax = ToolSyntax::kDeepSeekV31,
                .prefix = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"},
               "f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
               {.calls = {{"f", "{}"}}});
}

TEST(ChatParserTest, CallsOfDeepSeek) {
  const ChatFormat format = {.tools = true, .syntax = ToolSyntax::kDeepSeekV31};
  ExpectParsed(format,
               "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
               "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
               "<｜tool▁calls▁end｜>",
               {.content = "Well.", .calls = {{"f", R"({"a": 1})"}, {"g", "{}"}}});
  ExpectParsed(format,
               "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>no<｜tool▁call▁end｜>"
               "<｜tool▁calls▁end｜>",
               {.content = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>no"
                           "<｜tool▁call▁end｜>"});
  ExpectParsed(
      {.tools = true, .syntax = ToolSyntax::kDeepSeekV3},
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
      "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      {.calls = {{"f", R"({"a": 1})"}, {"g", "{}"}}});
}

TEST(ChatParserTest, CallsOfDeepSeekV32) {
  const ChatFormat format = {.tools = true, .syntax = ToolSyntax::kDeepSeekV32};
  ExpectParsed(format,
               "Well.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
               "<｜DSML｜parameter name=\"city\" string=\"true\">\"Köln\"\n</｜DSML｜parameter>\n"
               "<｜DSML｜parameter name=\"days\" string=\"false\">[1, 2]</｜DSML｜parameter>\n"
               "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
               "</｜DSML｜function_calls>",
               {.content = "Well.",
                .calls = {{"f", R"({"city": "\"Köln\"\n", "days": [1,2]})"}, {"g", "{}"}}});
  ExpectParsed(format, "<｜DSML｜function_calls>\nno", {.content = "<｜DSML｜function_calls>\nno"});
  // V3.2-Exp writes as V3.1 does.
  ExpectParsed(format, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}",
               {.calls = {{"f", "{}"}}});
}

TEST(ChatParserTest, CallsOfLlama) {
  const ChatFormat format = {.tools = true, .syntax = ToolSyntax::kLlama};
  ExpectParsed(format, R"({"name": "f", "parameters": {"a": {"b": 1}}})",
               {.calls = {{"f", R"({"a": {"b": 1}})"}}});
  ExpectParsed(format, R"(<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g"})",
               {.calls = {{"f", "{}"}, {"g", "{}"}}});
  ExpectParsed(format, R"({"type": "function", "name": "f", "parameters": {"a": 1}})",
               {.calls = {{"f", R"({"a": 1})"}}});
  ExpectParsed(format, "{x} is a set", {.content = "{x} is a set"});
  ExpectParsed(format, "Plain.", {.content = "Plain."});
  ExpectParsed(format, "In  plain\n\nwords. ", {.content = "In  plain\n\nwords. "});
  ExpectParsed(format, "<|python_tag|>print(1)", {.content = "<|python_tag|>print(1)"});
  ExpectParsed(format, R"({"name": "Romeo"} is no call that lacks)",
               {.content = "is no call that lacks", .calls = {{"Romeo", "{}"}}});
}

}  // namespace
}  // namespace longspan::server
