#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/effort.h"
#include "text/chat_template_test_support.h"
#include "text/jinja/template.h"

namespace longspan::text {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

base::Result<std::string> Render(std::string_view source, const Json& variables = Json::object(),
                                 const JinjaBounds& bounds = {}) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto parsed, JinjaTemplate::Parse(source));
  JinjaTemplate::Variables given;
  for (auto entry = variables.begin(); entry != variables.end(); ++entry)
    given.emplace_back(entry.key(), &entry.value());
  return parsed->Render(given, bounds);
}

std::string Message(std::string_view source, const Json& variables = Json::object()) {
  return Render(source, variables).status().message();
}

// Nearly a thousand expressions and statements, whose texts Jinja2 computed; null where it fails.
TEST(JinjaTemplateTest, SnippetsRenderAsJinja2RendersThem) {
  const std::vector<Json> lines = ReadChatLines("snippets.jsonl");
  Json variables = lines.at(0)["kwargs"];
  variables["messages"] = lines[0]["messages"];
  variables["add_generation_prompt"] = lines[0]["add_generation_prompt"];
  variables["tools"] = nullptr;
  variables["documents"] = nullptr;
  ASSERT_GT(lines.size(), 900u);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string source = lines[i][0];
    const auto text = Render(source, variables);
    if (lines[i][1].is_null()) {
      EXPECT_FALSE(text.ok()) << source << " gives " << *text;
    } else if (!text.ok()) {
      ADD_FAILURE() << source << ": " << text.status().message();
    } else {
      EXPECT_EQ(*text, lines[i][1].get<std::string>()) << source;
    }
  }
}

TEST(JinjaTemplateTest, ErrorsNameTheConstructAndItsLine) {
  const std::map<std::string, std::string> messages = {
      {"a\n{{ 1|nope }}", "line 2: there is no filter 'nope'"},
      {"a\n\n{{ 1 is nope }}", "line 3: there is no test 'nope'"},
      {"{{ 1|groupby('a') }}", "line 1: the filter 'groupby' is not supported"},
      {"\n{% nope %}", "line 2: unknown or misplaced statement '{% nope %}'"},
      {"{% include 'x' %}", "line 1: the statement '{% include %}' is not supported"},
      {"\n{% if true %}\nx", "line 2: a block has no '{% endif %}'"},
      {"{% for x in y %}{% if x %}{% endfor %}", "misplaced statement '{% endfor %}'"},
      {"\n{{ nope() }}", "line 2: 'nope' is undefined"},
      {"\n{{ joiner() }}", "line 2: 'joiner' is not supported"},
      {"{{ 'x'.casefold() }}", "the attribute 'casefold' of a str is not supported"},
      {"{{ [1].append(2) }}", "a list has no attribute 'append'"},
      {"a\nb{{ 1 +\n 'x' }}", "line 2: '+' does not work on int and str"},
      {"{{ {'a': 1}.a.b.c }}", "an int has no attribute 'b'"},
      {"{{ ('<'|safe) + '<' }}", "str marked as safe"},
      {"{{ f(*x) }}", "'*' before an argument"},
      {"{{ range(3) }}", "cannot be printed"},
      {"{% set g = [1]|map('string') %}{{ g|join }}{{ g|join }}", "walked over twice"},
      {"{{ 2 ** 200 }}", "integers beyond 128 bits"},
      {"{{ \"\\ud800\" }}", "no Unicode character"},
      {"{{ caf\u00e9 }}", "unexpected character '\u00e9'"},
  };
  for (const auto& [source, message] : messages)
    EXPECT_THAT(Message(source), HasSubstr(message)) << source;
  EXPECT_EQ(Render("{{ 1|groupby('a') }}").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Render("{{ 1|nope }}").status().code(), StatusCode::kInvalidArgument);
}

// Templates that would never end, or need memory or stack without bounds.
TEST(JinjaTemplateTest, HostileTemplatesEnd) {
  const std::string grow = "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}";
  const std::vector<std::string> templates = {
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{% call m(x) %}{{ m(x) }}{% endcall %}{{ caller() }}{% endmacro %}{{ m(1) "
      "}}",
      "{{ range(100001)|list }}",
      "{% set x = '\\n' * 1000000 %}{% for i in range(9999) %}{% set y = x|indent %}{% endfor %}",
      "{% set x = range(100000)|list %}{% for i in x %}{{ -1 in x }}{% endfor %}",
      "{{ 'a' * 1000000000000 }}",
      "{{ [0] * 1000000000000 }}",
      "{{ 'a'|indent(1000000000000) }}",
      "{% set ns = namespace(x='aa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% "
      "endfor %}",
      "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = "
      "ns.x|replace('a','aa') %}"
      "{% endfor %}",
      grow + "{% set ns.x = [ns.x] %}{% endfor %}",
      grow + "{% set ns.x = {'a': ns.x} %}{% endfor %}",
      grow + "{% set ns.x = [ns.x.count] %}{% endfor %}",
      grow + "{% set ns.x = [ns.x|reject('none')] %}{% endfor %}",
      grow + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% "
      "endfor %}"
      "{{ ns.x == ns.x }}",
  };
  // Small bounds, so that the test is fast under the sanitizers too.
  const JinjaBounds bounds = {.steps = 10'000, .work_bytes = 1 << 20, .value_bytes = 1 << 18};
  for (const std::string& source : templates) {
    const auto text = Render(source, Json::object(), bounds);
    EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted)
        << source << ": " << text.status().message();
    EXPECT_THAT(text.status().message(), HasSubstr("line 1")) << source;
  }
}

TEST(JinjaTemplateTest, NestingIsBounded) {
  const auto repeat = [](const std::string& part) {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += part;
    return text;
  };
  const std::vector<std::string> templates = {
      "{{ " + repeat("(") + "1" + repeat(")") + " }}",
      "{{ " + repeat("[") + repeat("]") + " }}",
      "{{ " + repeat("{1:") + "1" + repeat("}") + " }}",
      "{{ " + repeat("not ") + "1 }}",
      "{{ " + repeat("- ") + "1 }}",
      "{{ x" + repeat(".a") + " }}",
      "{{ x" + repeat("[0]") + " }}",
      "{{ x" + repeat("()") + " }}",
      "{{ 1" + repeat("+1") + " }}",
      "{{ 1" + repeat("*1") + " }}",
      "{{ 1" + repeat("**1") + " }}",
      "{{ 1" + repeat(" and 1") + " }}",
      "{{ 1" + repeat(" or 1") + " }}",
      "{{ 1" + repeat(" if 1 else 1") + " }}",
      "{{ 1" + repeat(" if 1") + " }}",
      "{{ 1" + repeat("|list") + " }}",
      repeat("{% if 1 %}") + repeat("{% endif %}"),
      repeat("{% for x in y %}"),
      repeat("{% filter upper %}"),
      repeat("{% macro m() %}"),
  };
  for (const std::string& source : templates)
    EXPECT_EQ(Render(source).status().code(), StatusCode::kResourceExhausted)
        << source.substr(0, 20) << ": " << Message(source);
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_THAT(Message("{{ x }}", {{"x", deep}}), HasSubstr("nested deeper than"));
}

TEST(JinjaTemplateTest, ValuesThatReferToThemselvesAreReleased) {
  EXPECT_EQ(*Render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns] %}"
                    "{% macro m() %}x{% endmacro %}{% set ns.m = m %}{{ ns.me.list[0].m() }}"),
            "x");
  EXPECT_EQ(
      *Render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}"
              "{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
      "2");
}

TEST(JinjaTemplateTest, BrokenUtf8IsKept) {
  const std::string broken = "a\xff\xc3";
  JinjaTemplate::Variables none;
  EXPECT_EQ(*(*JinjaTemplate::Parse("x" + broken))->Render(none), "x" + broken);
  EXPECT_EQ(*Render("{{ x|upper|length }}{{ x[1:]|length }}{{ x|tojson|length }}", {{"x", broken}}),
            "325");
}

// What is rendered with a damaged template: conversations that reach every branch of them.
std::vector<Json> FuzzVariables() {
  std::vector<Json> all;
  for (const Json& line : ReadChatLines("conversations.jsonl")) {
    if (all.size() >= 6) break;
    Json variables = line["request"]["kwargs"];
    for (const char* name : {"messages", "add_generation_prompt", "tools"})
      variables[name] = line["request"].value(name, Json());
    variables["bos_token"] = "<s>";
    if (all.empty() || variables["messages"] != all.back()["messages"]) all.push_back(variables);
  }
  return all;
}

// Neither crashes nor hangs, and fails with a sentence.
void ExpectHandled(const std::string& source, const std::vector<Json>& requests) {
  for (const Json& variables : requests) {
    const auto text = Render(source, variables);
    if (!text.ok()) {
      EXPECT_FALSE(text.status().message().empty());
    }
  }
}

TEST(JinjaFuzzTest, TruncatedTemplatesAreHandled) {
  const std::vector<Json> requests = FuzzVariables();
  for (const std::string& name : ChatTemplateNames()) {
    const std::string source = ReadChatData("templates/" + name + ".jinja");
    ASSERT_FALSE(source.empty()) << name;
    for (size_t size = 0; size < source.size(); size += testing::Effort(5, 31))
      ExpectHandled(source.substr(0, size), requests);
    for (size_t start = 1; start < source.size(); start += testing::Effort(11, 53))
      ExpectHandled(source.substr(start), requests);
  }
}

TEST(JinjaFuzzTest, MutatedTemplatesAreHandled) {
  const std::vector<Json> requests = FuzzVariables();
  const std::vector<std::string> parts = {"{%",
                                          "%}",
                                          "{{",
                                          "}}",
                                          "{#",
                                          "#}",
                                          "'",
                                          "\"",
                                          "(",
                                          ")",
                                          "[",
                                          "]",
                                          ".",
                                          "|",
                                          "-",
                                          "+",
                                          "~",
                                          "\\",
                                          " not ",
                                          " in ",
                                          " is ",
                                          "::-1",
                                          "{% for x in messages %}",
                                          "{% endfor %}",
                                          "{% if x %}",
                                          "{% endif %}",
                                          "|tojson",
                                          "\xff",
                                          "\n",
                                          "0",
                                          "9999999999",
                                          " if ",
                                          " else ",
                                          "loop"};
  std::mt19937 random(20240607);
  const auto below = [&](size_t count) { return random() % count; };
  for (const std::string& name : ChatTemplateNames()) {
    const std::string source = ReadChatData("templates/" + name + ".jinja");
    for (int round = 0; round < testing::Effort(250, 50); ++round) {
      std::string mutated = source;
      for (size_t edits = 1 + below(4); edits > 0; --edits) {
        const size_t at = below(mutated.size());
        const size_t length = below(30);
        if (below(3) == 0)
          mutated.erase(at, length);
        else if (below(2) == 0)
          mutated.insert(at, parts[below(parts.size())]);
        else
          mutated.insert(below(mutated.size()), mutated.substr(at, length));
        if (mutated.empty()) mutated.push_back(' ');
      }
      ExpectHandled(mutated, requests);
    }
  }
}

}  // namespace
}  // namespace longspan::text
