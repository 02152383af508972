#include "text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat_template_test_support.h"

namespace longspan::text {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

ChatRequest Request(const Json& json) {
  auto request = ParseChatRequest(json.dump());
  EXPECT_TRUE(request.ok()) << request.status().message();
  return request.ok() ? *request : ChatRequest();
}

// The fixtures' conversations and generated ones, whose texts Jinja2 computed.
TEST(ChatTemplateTest, ConversationsRenderAsJinja2RendersThem) {
  size_t rendered = 0;
  size_t refused = 0;
  for (const Json& expected : ReadChatLines("conversations.jsonl")) {
    const std::string name = expected["template"];
    const auto chat = ChatTemplate::Parse(ReadChatData("templates/" + name + ".jinja"),
                                          expected["bos"], expected["eos"]);
    ASSERT_TRUE(chat.ok()) << name << ": " << chat.status().message();
    const auto text = chat->Render(Request(expected["request"]));
    if (expected["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << name << " " << expected["request"].dump();
      ++refused;
      continue;
    }
    ASSERT_TRUE(text.ok()) << name << ": " << text.status().message();
    EXPECT_EQ(*text, expected["text"].get<std::string>()) << name;
    ++rendered;
  }
  EXPECT_GT(rendered, 150u);
  EXPECT_GT(refused, 20u);
}

TEST(ChatTemplateTest, RaisedExceptionsPassThroughAlone) {
  const auto chat = ChatTemplate::Parse(
      "{% if messages[0].role != 'user' %}\n{{ raise_exception('No ' + messages[0].role) }}{% "
      "endif %}",
      "", "");
  ASSERT_TRUE(chat.ok());
  const auto text = chat->Render(Request({{"messages", {{{"role", "tool"}}}}}));
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(text.status().message(), "No tool");
}

TEST(ChatTemplateTest, KwargsDoNotReplaceTheRequest) {
  const auto chat = ChatTemplate::Parse("{{ messages }}", "", "");
  const auto text =
      chat->Render(Request({{"messages", {{{"role", "user"}}}}, {"kwargs", {{"tools", 1}}}}));
  EXPECT_THAT(text.status().message(), HasSubstr("\"tools\" must not be in \"kwargs\""));
}

TEST(ChatTemplateTest, OneTemplateServesManyThreads) {
  const auto chat = ChatTemplate::Parse(ReadChatData("templates/qwen3.jinja"), "", "");
  const ChatRequest request = Request({{"messages", {{{"role", "user"}, {"content", "Hi"}}}}});
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) text = *chat->Render(request);
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts)
    EXPECT_EQ(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatRequestTest, ReadsEveryMember) {
  const auto request = ParseChatRequest(
      R"({"messages":[{"role":"user","z":1,"a":18446744073709551615}],"tools":[{}],)"
      R"("add_generation_prompt":false,"kwargs":{"enable_thinking":false}})");
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->messages.dump(), R"([{"role":"user","z":1,"a":18446744073709551615}])");
  EXPECT_EQ(request->tools.size(), 1u);
  EXPECT_FALSE(request->add_generation_prompt);
  EXPECT_EQ(request->kwargs["enable_thinking"], false);
  const auto least =
      ParseChatRequest(R"({"messages":[{"role":"user"}],"tools":null,"kwargs":null})");
  ASSERT_TRUE(least.ok());
  EXPECT_TRUE(least->tools.is_null());
  EXPECT_TRUE(least->add_generation_prompt);
  EXPECT_TRUE(least->kwargs.is_object());
}

TEST(ChatRequestTest, TellsWhatToChange) {
  const std::map<std::string, std::string> messages = {
      {"", "no JSON"},
      {"{", "no JSON"},
      {"[]", "must be an object"},
      {"{}", "no \"messages\""},
      {R"({"messages":[]})", "is empty"},
      {R"({"messages":{}})", "must be an array"},
      {R"({"messages":["x"]})", "message 0"},
      {R"({"messages":[{"role":"user"},{"content":"x"}]})", "message 1"},
      {R"({"messages":[{"role":7}]})", "\"role\""},
      {R"({"messages":[{"role":"user"}],"tools":{}})", "\"tools\""},
      {R"({"messages":[{"role":"user"}],"kwargs":[]})", "\"kwargs\""},
      {R"({"messages":[{"role":"user"}],"add_generation_prompt":1})", "true or false"},
      {R"({"messages":[{"role":"user"}],"message":1})", "unknown member \"message\""},
      {R"({"messages":[{"role":"user","n":123456789012345678901}]})", "64 bits"},
      {R"({"messages":[{"role":"user","n":1e999}]})", "out of range"},
      {"{\"messages\":[{\"role\":\"\xff\"}]}", "no JSON"},
      {R"({"messages":)" + std::string(200, '[') + std::string(200, ']') + "}", "100 levels"},
      {R"({"messages":)" + std::string(1000000, '['), "100 levels"},
  };
  for (const auto& [json, message] : messages) {
    const auto request = ParseChatRequest(json);
    ASSERT_FALSE(request.ok()) << json.substr(0, 100);
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(request.status().message(), HasSubstr(message));
  }
}

// A model folder that goes with the test.
class ModelFolderTest : public ::testing::Test {
 protected:
  ModelFolderTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("longspan_chat_{}_{}", getpid(),
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~ModelFolderTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string Render(const Json& tools = nullptr) {
    const auto chat = ChatTemplate::Load(folder_);
    if (!chat.ok()) return chat.status().message();
    ChatRequest request = Request({{"messages", {{{"role", "user"}}}}, {"tools", tools}});
    const auto text = chat->Render(request);
    return text.ok() ? *text : text.status().message();
  }

  std::filesystem::path folder_;
};

TEST_F(ModelFolderTest, TokensAreStringsOrObjects) {
  Write("tokenizer_config.json",
        R"({"chat_template":"{{bos_token}}{{eos_token}}{{pad_token is defined}}",)"
        R"("bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":null})");
  EXPECT_EQ(Render(), "<s></s>False");
}

TEST_F(ModelFolderTest, NamedTemplates) {
  Write(
      "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]})");
  EXPECT_EQ(Render(), "D");
  EXPECT_EQ(Render(Json::array({Json::object()})), "T");
}

TEST_F(ModelFolderTest, AFileOfItsOwnWins) {
  Write("tokenizer_config.json", R"({"chat_template":"config {{ eos_token }}","eos_token":"E"})");
  Write("chat_template.json", R"({"chat_template":"json"})");
  EXPECT_EQ(Render(), "config E");
  Write("chat_template.jinja", "file {{ eos_token }}\n");
  EXPECT_EQ(Render(), "file E");
  std::filesystem::remove(folder_ / "chat_template.jinja");
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Render(), "json");
}

TEST_F(ModelFolderTest, MissingAndBrokenTemplates) {
  EXPECT_THAT(Render(), HasSubstr("has no chat template"));
  EXPECT_EQ(ChatTemplate::Load(folder_).status().code(), StatusCode::kNotFound);
  Write("tokenizer_config.json", R"({"chat_template":null})");
  EXPECT_EQ(ChatTemplate::Load(folder_).status().code(), StatusCode::kNotFound);
  Write("tokenizer_config.json", R"({"chat_template":7})");
  EXPECT_THAT(Render(), HasSubstr("neither a string nor a list"));
  Write("tokenizer_config.json", "{");
  EXPECT_EQ(ChatTemplate::Load(folder_).status().code(), StatusCode::kDataLoss);
  Write("tokenizer_config.json", R"({"chat_template":"{{ 'a'"})");
  EXPECT_THAT(Render(), HasSubstr("chat template, line 1"));
}

}  // namespace
}  // namespace longspan::text
