#include "server/tool_style.h"

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/json.h"

namespace longspan::server {
namespace {

using ::testing::HasSubstr;

class ToolStyleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tokenizer_ = text::Tokenizer::Load(LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe").value();
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  static ToolStyle StyleOf(std::string_view source) {
    return FindToolStyle(text::ChatTemplate::Parse(source, "", "").value(), *tokenizer_);
  }

  static std::unique_ptr<const text::Tokenizer> tokenizer_;
};
std::unique_ptr<const text::Tokenizer> ToolStyleTest::tokenizer_;

TEST_F(ToolStyleTest, TheEmbeddedModelsIsQwens) {
  const auto chat_template =
      text::ChatTemplate::Load(LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe").value();
  const ToolStyle style = FindToolStyle(chat_template, *tokenizer_);
  EXPECT_EQ(style.syntax, ToolSyntax::kHermes);
  EXPECT_TRUE(style.shows_tools);
  EXPECT_FALSE(style.null_content);
  EXPECT_FALSE(style.text_arguments);
}

// As DeepSeek V3's template does it: only a message without content calls, its arguments are joined
// as a text, and tools are not shown.
TEST_F(ToolStyleTest, NullContentAndTextsWhereTheTemplateWantsThem) {
  const ToolStyle style = StyleOf(
      "{%- for m in messages %}{%- if m['content'] is none %}{%- for t in m['tool_calls'] %}"
      "{{ '<｜tool▁call▁begin｜>' + t['type'] + '<｜tool▁sep｜>' + t['function']['name'] + "
      "t['function']['arguments'] }}{%- endfor %}{%- else %}{{ m['content'] }}{%- endif %}"
      "{%- endfor %}");
  EXPECT_EQ(style.syntax, ToolSyntax::kDeepSeekV3);
  EXPECT_FALSE(style.shows_tools);
  EXPECT_TRUE(style.null_content);
  EXPECT_TRUE(style.text_arguments);
}

TEST_F(ToolStyleTest, MarksTellTheSyntax) {
  const std::string tools = "{{ tools | tojson }}";
  const std::string loop = "{% for m in messages %}{% for t in m.tool_calls or [] %}";
  const std::string end =
      "{{ t.function.name }}{{ t.function.arguments | tojson }}{% endfor %}{% endfor %}";
  ToolStyle style = StyleOf(tools + loop + "<｜DSML｜function_calls>" + end);
  EXPECT_EQ(style.syntax, ToolSyntax::kDeepSeekV32);
  EXPECT_TRUE(style.shows_tools);
  style = StyleOf(loop + "<｜tool▁call▁begin｜><｜tool▁sep｜>" + end);
  EXPECT_EQ(style.syntax, ToolSyntax::kDeepSeekV31);
  EXPECT_FALSE(style.shows_tools);
  // Without a mark, and without calls at all.
  EXPECT_EQ(StyleOf(loop + end).syntax, ToolSyntax::kHermes);
  style = StyleOf(tools + "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(style.syntax, ToolSyntax::kHermes);
  EXPECT_TRUE(style.shows_tools);
}

// The templates as the models have them.
TEST_F(ToolStyleTest, TheModelsOwnTemplates) {
  const auto style_of = [&](const char* name) {
    std::ifstream file(LONGSPAN_SOURCE_DIR "/tests/data/chat/templates/" + std::string(name));
    const std::string source(std::istreambuf_iterator<char>(file), {});
    EXPECT_FALSE(source.empty()) << name;
    return StyleOf(source);
  };
  const ToolStyle qwen = style_of("qwen3.jinja");
  EXPECT_EQ(qwen.syntax, ToolSyntax::kHermes);
  EXPECT_TRUE(qwen.shows_tools);
  EXPECT_FALSE(qwen.null_content);
  const ToolStyle deep_seek = style_of("deepseek_v3.jinja");
  EXPECT_EQ(deep_seek.syntax, ToolSyntax::kDeepSeekV3);
  EXPECT_FALSE(deep_seek.shows_tools);
  EXPECT_TRUE(deep_seek.null_content);
  EXPECT_TRUE(deep_seek.text_arguments);
  for (const char* name : {"llama31.jinja", "llama32.jinja"}) {
    const ToolStyle llama = style_of(name);
    EXPECT_EQ(llama.syntax, ToolSyntax::kLlama) << name;
    EXPECT_TRUE(llama.shows_tools) << name;
    EXPECT_FALSE(llama.text_arguments) << name;
  }
  EXPECT_FALSE(style_of("llama3.jinja").shows_tools);
}

TEST_F(ToolStyleTest, PrefixesBeginCalls) {
  EXPECT_EQ(CallPrefix(ToolSyntax::kHermes, "f"), "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(CallPrefix(ToolSyntax::kHermes, ""), "<tool_call>\n{\"name\": \"");
  EXPECT_EQ(CallPrefix(ToolSyntax::kHermes, "a\"b"),
            "<tool_call>\n{\"name\": \"a\\\"b\", \"arguments\": ");
  EXPECT_EQ(CallPrefix(ToolSyntax::kLlama, "f"), "{\"name\": \"f\", \"parameters\": ");
  EXPECT_EQ(CallPrefix(ToolSyntax::kDeepSeekV3, "f"),
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n");
  EXPECT_EQ(CallPrefix(ToolSyntax::kDeepSeekV31, "f"),
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>");
  EXPECT_EQ(CallPrefix(ToolSyntax::kDeepSeekV32, "f"),
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n");
}

TEST_F(ToolStyleTest, InstructionsShowTheTools) {
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "weather"}}}}});
  const std::string text = ToolInstructions(ToolSyntax::kDeepSeekV3, tools);
  EXPECT_THAT(text, HasSubstr("{\"name\":\"weather\"}"));
  EXPECT_THAT(text, HasSubstr(CallPrefix(ToolSyntax::kDeepSeekV3, "NAME")));
  EXPECT_EQ(ToolInstructions(ToolSyntax::kHermes, tools), "");
}

}  // namespace
}  // namespace longspan::server
