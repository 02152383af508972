// From the JSON of requests to what is generated, with the embedded model's tokenizer and template.
#include "server/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class CallTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* folder = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
    tokenizer_ = std::move(text::Tokenizer::Load(folder)).value();
    model_ = new ServedModel;
    model_->name = "tiny";
    model_->tokenizer = tokenizer_.get();
    model_->chat_template = text::ChatTemplate::Load(folder).value();
    model_->limits = {
        .vocab_size = 1024, .context_length = 4096, .capacity_tokens = 8192, .page_size = 64};
    model_->end_tokens = {2};
  }
  static void TearDownTestSuite() {
    delete model_;
    tokenizer_.reset();
  }

  // The prompt's text.
  static std::string Prompt(const Call& call, size_t index = 0) {
    return tokenizer_->Decode(call.generation.prompts[index], /*skip_special=*/false).value();
  }
  static Call Chat(const Json& request) {
    Call call;
    const auto error = ReadChatCall(request, *model_, call);
    EXPECT_FALSE(error) << error->status.message();
    return call;
  }
  static std::string ChatError(const Json& request) {
    Call call;
    const auto error = ReadChatCall(request, *model_, call);
    return error ? error->status.message() : "";
  }

  static std::unique_ptr<const text::Tokenizer> tokenizer_;
  static ServedModel* model_;
};
std::unique_ptr<const text::Tokenizer> CallTest::tokenizer_;
ServedModel* CallTest::model_ = nullptr;

Json Messages(const char* content) {
  return Json::array({{{"role", "user"}, {"content", content}}});
}

Json Tool(const char* name) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"parameters", {{"type", "object"}}}}}};
}

TEST_F(CallTest, PromptsOfEveryForm) {
  const auto prompts = [&](const Json& prompt) {
    Call call;
    const auto error = ReadCompletionCall({{"prompt", prompt}}, *model_, call);
    return error ? 0 : call.generation.prompts.size();
  };
  EXPECT_EQ(prompts("To be"), 1u);
  EXPECT_EQ(prompts({"To be", "or not"}), 2u);
  EXPECT_EQ(prompts(Json::array({5, 6, 7})), 1u);
  EXPECT_EQ(prompts(Json::array({Json::array({5, 6}), Json::array({7})})), 2u);
  for (const Json& wrong :
       {Json(5), Json(Json::array()), Json(""), Json::array({5, "x"}), Json::array({1.5}),
        Json::array({5000}), Json::array({-1}), Json::array({Json::array()}),
        Json::array({Json::array({Json::array({5})})}), Json::array({nullptr})})
    EXPECT_EQ(prompts(wrong), 0u) << Dump(wrong);
}

// They would find the queue full for ever; choices wait for their places.
TEST_F(CallTest, MorePromptsThanTheQueueHoldsAreRefused) {
  ServedModel model = *model_;
  model.most_queued = 2;
  const auto error_of = [&](const Json& request) {
    Call call;
    const auto error = ReadCompletionCall(request, model, call);
    return error ? error->param + ": " + error->status.message() : "";
  };
  EXPECT_EQ(error_of({{"prompt", {"a", "b"}}, {"n", 8}}), "");
  EXPECT_EQ(error_of({{"prompt", {"a", "b", "c"}}}),
            "prompt: the request has 3 prompts: at most 2 at once, which is --max-queued-requests");
}

TEST_F(CallTest, DefaultsAreOpenAis) {
  Call call;
  ASSERT_FALSE(ReadCompletionCall({{"prompt", "x"}}, *model_, call));
  EXPECT_EQ(call.generation.common.max_tokens, 16);
  // More than there is room for is what there is room for.
  Call greedy;
  ASSERT_FALSE(
      ReadCompletionCall({{"prompt", "x"}, {"max_tokens", 1'000'000'000'000}}, *model_, greedy));
  EXPECT_EQ(greedy.generation.common.max_tokens, 1'000'000'000'000) << "cut when it is known";
  EXPECT_EQ(call.generation.common.sampling.temperature, 1);
  EXPECT_FALSE(call.stream);
  // Two requests without a seed draw differently.
  Call other;
  ASSERT_FALSE(ReadCompletionCall({{"prompt", "x"}}, *model_, other));
  EXPECT_NE(call.generation.common.sampling.seed, other.generation.common.sampling.seed);
  // A chat goes on as long as there is room.
  const Call chat = Chat({{"messages", Messages("x")}});
  EXPECT_EQ(chat.generation.common.max_tokens, 4096);
}

TEST_F(CallTest, AChatIsRenderedAndTokenised) {
  const Call call = Chat({{"messages", Messages("Who is there?")}, {"max_tokens", 5}});
  EXPECT_EQ(Prompt(call), "<|im_start|>user\nWho is there?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(call.generation.common.max_tokens, 5);
  const Call parts = Chat(
      {{"messages",
        {{{"role", "developer"}, {"content", "Be brief."}},
         {{"role", "user"},
          {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}}}}});
  EXPECT_THAT(Prompt(parts), HasSubstr("<|im_start|>system\nBe brief.<|im_end|>"));
  EXPECT_THAT(Prompt(parts), HasSubstr("user\na\nb<|im_end|>"));
}

TEST_F(CallTest, ThinkingIsTheTemplates) {
  const Call off =
      Chat({{"messages", Messages("x")}, {"chat_template_kwargs", {{"enable_thinking", false}}}});
  EXPECT_THAT(Prompt(off), EndsWith("</think>\n\n"));
  EXPECT_FALSE(off.chat.begins_in_reasoning);
}

TEST_F(CallTest, ToolsAndTheirChoice) {
  Json request = {{"messages", Messages("x")}, {"tools", Json::array({Tool("f"), Tool("g")})}};
  const Call automatic = Chat(request);
  EXPECT_TRUE(automatic.chat.tools);
  EXPECT_THAT(Prompt(automatic), HasSubstr("\"name\": \"g\""));
  request["tool_choice"] = "none";
  EXPECT_FALSE(Chat(request).chat.tools);
  EXPECT_THAT(Prompt(Chat(request)), Not(HasSubstr("\"g\"")));
  request["tool_choice"] = "required";
  EXPECT_THAT(Prompt(Chat(request)), EndsWith("<tool_call>\n{\"name\": \""));
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "g"}}}};
  const Call named = Chat(request);
  EXPECT_THAT(Prompt(named), EndsWith("<tool_call>\n{\"name\": \"g\", \"arguments\": "));
  EXPECT_EQ(named.generation.stop, std::vector<std::string>{"</tool_call>"});
  EXPECT_TRUE(named.chat.one_call);
  request["parallel_tool_calls"] = "no";
  EXPECT_THAT(ChatError(request), HasSubstr("'parallel_tool_calls'"));
  request.erase("parallel_tool_calls");
  request["tool_choice"]["function"]["name"] = "h";
  EXPECT_THAT(ChatError(request), HasSubstr("'h'"));
}

// DeepSeek V3's template knows the calls and not the tools.
TEST_F(CallTest, ToolsThatTheTemplateDoesNotShow) {
  ServedModel model = *model_;
  model.tool_style = {.syntax = ToolSyntax::kDeepSeekV3, .shows_tools = false};
  const Json request = {{"messages", Messages("x")}, {"tools", Json::array({Tool("f")})}};
  Call call;
  ASSERT_FALSE(ReadChatCall(request, model, call));
  EXPECT_THAT(Prompt(call), HasSubstr("system\n## Tools"));
  EXPECT_THAT(Prompt(call), HasSubstr("{\"name\":\"f\""));
  model.tool_style.syntax = ToolSyntax::kHermes;
  Call refused;
  const auto error = ReadChatCall(request, model, refused);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "tools");
}

TEST_F(CallTest, ErrorsHaveTheirCodes) {
  const auto code = [&](const Json& request) {
    Call call;
    const auto error = ReadCompletionCall(request, *model_, call);
    return error ? error->code + " " + error->param : "";
  };
  EXPECT_EQ(code(Json::object()), "missing_required_parameter prompt");
  EXPECT_EQ(code({{"prompt", "x"}, {"n", "two"}}), "invalid_type n");
  EXPECT_EQ(code({{"prompt", "x"}, {"n", 0}}), "invalid_value n");
  EXPECT_EQ(code({{"prompt", "x"}, {"suffix", "y"}}), "unsupported_parameter suffix");
  EXPECT_EQ(code({{"prompt", "x"}, {"stream_options", {{"include_usage", 1}}}}),
            "invalid_type stream_options.include_usage");
  EXPECT_EQ(code({{"prompt", 5}}), "invalid_type prompt");
  EXPECT_EQ(code({{"prompt", ""}}), "invalid_value prompt");
  EXPECT_EQ(code({{"prompt", {1024}}}), "invalid_value prompt");
  EXPECT_EQ(code({{"prompt", "x"}, {"top_p", 2}}), "invalid_value top_p");
  EXPECT_EQ(code({{"prompt", "x"}, {"repetition_penalty", 0}}), "invalid_value repetition_penalty");
  EXPECT_EQ(code({{"prompt", "x"}, {"temperature", 1e9}}), "invalid_value temperature");
  EXPECT_EQ(code({{"prompt", "x"}, {"max_tokens", -1}}), "invalid_value max_tokens");
}

TEST_F(CallTest, ScoresOfPrompts) {
  Call call;
  ASSERT_FALSE(ReadCompletionCall(
      {{"prompt", {5, 6, 7}}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 0}}, *model_, call));
  EXPECT_EQ(call.generation.scored_from, 1);
  EXPECT_EQ(call.scored_prompts, (std::vector<std::vector<int32_t>>{{5, 6, 7}}));
  Call native;
  ASSERT_FALSE(
      ReadNativeCall({{"input_ids", {5, 6, 7}}, {"return_logprob", true}, {"logprob_start_len", 2}},
                     *model_, native));
  EXPECT_EQ(native.generation.scored_from, 2);
  Call none;
  ASSERT_FALSE(ReadNativeCall({{"input_ids", {5, 6, 7}}, {"return_logprob", true}}, *model_, none));
  EXPECT_FALSE(none.generation.scored_from);
}

TEST_F(CallTest, CallsOfEarlierTurns) {
  const Call call = Chat({{"messages",
                           {{{"role", "user"}, {"content", "x"}},
                            {{"role", "assistant"},
                             {"content", nullptr},
                             {"tool_calls",
                              {{{"id", "1"},
                                {"type", "function"},
                                {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}}}}},
                            {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "sunny"}}}}});
  EXPECT_THAT(Prompt(call),
              HasSubstr("{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
  EXPECT_THAT(Prompt(call), HasSubstr("<tool_response>\nsunny\n</tool_response>"));
}

TEST_F(CallTest, WhatWouldChangeTheResultIsRefused) {
  const auto with = [&](const char* name, const Json& value) {
    return ChatError({{"messages", Messages("x")}, {name, value}});
  };
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, Json>>{{"response_format", {{"type", "json_object"}}},
                                                 {"functions", Json::array({Json::object()})},
                                                 {"continue_final_message", true},
                                                 {"chat_template", "{{x}}"},
                                                 {"modalities", Json::array({"audio"})},
                                                 {"min_tokens", 3},
                                                 {"function_call", {{"name", "f"}}},
                                                 {"logit_bias", {{"99999", 1}}},
                                                 {"logit_bias", {{"5", 1000}}},
                                                 {"top_logprobs", 3},
                                                 {"n", 0},
                                                 {"stop", 5},
                                                 {"top_p", 0}})
    EXPECT_THAT(with(name, value), Not("")) << name;
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, Json>>{{"response_format", {{"type", "text"}}},
                                                 {"functions", nullptr},
                                                 {"modalities", Json::array({"text"})},
                                                 {"logit_bias", Json::object()},
                                                 {"store", false},
                                                 {"function_call", "auto"},
                                                 {"tools", Json::array()},
                                                 {"length_penalty", 1},
                                                 {"top_k", -1},
                                                 {"parallel_tool_calls", true},
                                                 {"something", "else"}})
    EXPECT_EQ(with(name, value), "") << name;
  const Json image = Json::array({{{"type", "image_url"}}});
  EXPECT_THAT(ChatError({{"messages", Json::array({{{"role", "user"}, {"content", image}}})}}),
              HasSubstr("part"));
}

TEST_F(CallTest, APromptThatDoesNotFitIsRefusedWithTheLimit) {
  Call call;
  const auto error = ReadCompletionCall({{"prompt", Json(5000, 7)}}, *model_, call);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_EQ(error->param, "prompt");
  EXPECT_THAT(error->status.message(), HasSubstr("4096"));
}

TEST_F(CallTest, NativeRequests) {
  Call call;
  ASSERT_FALSE(ReadNativeCall(
      {{"input_ids", {{5, 6}, {7}}},
       {"sampling_params", {{"max_new_tokens", 3}, {"sampling_seed", 9}, {"temperature", 0}}},
       {"rid", "r"},
       {"lora_path", nullptr}},
      *model_, call));
  EXPECT_TRUE(call.is_batch);
  EXPECT_EQ(call.id, "r");
  EXPECT_EQ(call.generation.prompts.size(), 2u);
  EXPECT_EQ(call.generation.common.max_tokens, 3);
  EXPECT_EQ(call.generation.common.sampling.seed, 9u);
  Call wrong;
  const auto error =
      ReadNativeCall({{"text", "x"}, {"sampling_params", {{"regex", "a+"}}}}, *model_, wrong);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->param, "sampling_params.regex");
}

// As they come from a body: a number that is too large for an id is none, and becomes no other one.
TEST_F(CallTest, IdsThatDoNotFitAreRefused) {
  for (const char* id : {"4294967333", "1099511627776", "-2147483649", "2147483648"}) {
    Call call;
    const auto body = ParseJson(fmt::format(R"({{"prompt": [5, {}]}})", id));
    ASSERT_TRUE(body.ok());
    EXPECT_TRUE(ReadCompletionCall(*body, *model_, call)) << id;
    Call native;
    const auto ids = ParseJson(fmt::format(R"({{"input_ids": [5, {}]}})", id));
    EXPECT_TRUE(ReadNativeCall(*ids, *model_, native)) << id;
    Call stops;
    const auto stop = ParseJson(fmt::format(R"({{"prompt": [5], "stop_token_ids": [{}]}})", id));
    EXPECT_TRUE(ReadCompletionCall(*stop, *model_, stops)) << id;
  }
}

TEST_F(CallTest, StopsAreLimited) {
  const auto error = [&](const Json& stop, const Json& ids) {
    Call call;
    const auto refused = ReadCompletionCall(
        {{"prompt", "x"}, {"stop", stop}, {"stop_token_ids", ids}}, *model_, call);
    return refused ? refused->status.message() : "";
  };
  EXPECT_EQ(error(std::vector<std::string>(64, "end"), std::vector<int>(1024, 5)), "");
  EXPECT_THAT(error(std::vector<std::string>(65, "end"), nullptr), HasSubstr("at most 64"));
  EXPECT_THAT(error(std::string(1025, 'x'), nullptr), HasSubstr("at most 1024"));
  EXPECT_THAT(error(nullptr, std::vector<int>(1025, 5)), HasSubstr("at most 1024"));
}

TEST(SamplingDefaultsTest, ComeFromTheModel) {
  spec::SamplingSpec sampling{.temperature = 1};
  ReadSamplingDefaults(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95})",
                       sampling);
  EXPECT_EQ(sampling.temperature, 0.6);
  EXPECT_EQ(sampling.top_k, 20);
  spec::SamplingSpec kept{.temperature = 1};
  for (const char* useless : {"{", "[]", R"({"temperature": -1})", R"({"eos_token_id": 2})"})
    ReadSamplingDefaults(useless, kept);
  EXPECT_EQ(kept, spec::SamplingSpec{.temperature = 1});
}

}  // namespace
}  // namespace longspan::server
