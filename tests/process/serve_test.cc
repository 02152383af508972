// `longspan serve`, as clients see it: real sockets, the embedded model.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/running_server.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// One for all tests that do not end it.
class ServeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<RunningServer>(std::vector<std::string>{
        "--pp-size", "2", "--dtype", "f32", "--chunked-prefill-size", "128", "--max-total-tokens",
        "32768", "--served-model-name", "tiny"});
  }
  static void TearDownTestSuite() { server_.reset(); }

  static std::unique_ptr<RunningServer> server_;
};
std::unique_ptr<RunningServer> ServeTest::server_;

TEST_F(ServeTest, CompletesTokenIdsAsTheReferenceDoes) {
  const json golden = GoldenCase("needle300");
  const json reply = server_->PostJson(
      "/v1/completions",
      {{"model", "tiny"}, {"prompt", golden["ids"]}, {"max_tokens", 32}, {"temperature", 0}});
  EXPECT_EQ(reply["object"], "text_completion");
  EXPECT_EQ(reply["model"], "tiny");
  EXPECT_THAT(reply["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(reply["choices"][0]["text"], golden["greedy_text"]);
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(reply["usage"]["prompt_tokens"], golden["ids"].size());
  EXPECT_EQ(reply["usage"]["completion_tokens"], golden["greedy"].size());
  EXPECT_EQ(reply["usage"]["total_tokens"], golden["ids"].size() + golden["greedy"].size());
  // The second time most of it is cached.
  const json again = server_->PostJson(
      "/v1/completions", {{"prompt", golden["ids"]}, {"max_tokens", 32}, {"temperature", 0}});
  EXPECT_EQ(again["choices"][0]["text"], golden["greedy_text"]);
  EXPECT_GE(again["usage"]["prompt_tokens_details"]["cached_tokens"], 192);
}

TEST_F(ServeTest, StreamsTheSameText) {
  const json golden = GoldenCase("needle300");
  const auto events =
      server_->Stream("/v1/completions", {{"prompt", golden["ids"]},
                                          {"max_tokens", 32},
                                          {"temperature", 0},
                                          {"stream_options", {{"include_usage", true}}}});
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    ASSERT_EQ(events[i]["choices"].size(), 1u);
    text += events[i]["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, golden["greedy_text"]);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], golden["greedy"].size());
  // Without being asked for no event is without a choice: benchmark clients do not expect it.
  for (const json& event :
       server_->Stream("/v1/completions", {{"prompt", golden["ids"]}, {"max_tokens", 5}}))
    EXPECT_EQ(event["choices"].size(), 1u);
}

TEST_F(ServeTest, BatchesAndChoicesHaveTheirIndices) {
  const json first = GoldenCase("needle300");
  const json second = GoldenCase("text0");
  const json reply =
      server_->PostJson("/v1/completions", {{"prompt", json::array({first["ids"], second["ids"]})},
                                            {"max_tokens", 8},
                                            {"temperature", 0},
                                            {"n", 2}});
  ASSERT_EQ(reply["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(reply["choices"][i]["index"], i);
  EXPECT_EQ(reply["choices"][0]["text"], reply["choices"][1]["text"]);
  EXPECT_EQ(reply["choices"][2]["text"], reply["choices"][3]["text"]);
  EXPECT_NE(reply["choices"][0]["text"], reply["choices"][2]["text"]);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], first["ids"].size() + second["ids"].size());
  const json texts = server_->PostJson(
      "/v1/completions", {{"prompt", {"To be", "ROMEO:"}}, {"max_tokens", 3}, {"echo", true}});
  EXPECT_THAT(texts["choices"][1]["text"].get<std::string>(), StartsWith("ROMEO:"));
}

TEST_F(ServeTest, SeedsStopsAndBiases) {
  const json golden = GoldenCase("needle300");
  json request = {{"prompt", golden["ids"]}, {"max_tokens", 20}, {"temperature", 0}};
  request["stop"] = json::array({"nothing", " Bene"});
  json reply = server_->PostJson("/v1/completions", request);
  EXPECT_EQ(reply["choices"][0]["text"], "The secret number of");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(reply["choices"][0]["matched_stop"], " Bene");
  request.erase("stop");
  request["max_tokens"] = 3;
  request["logit_bias"] = {{std::to_string(golden["ids"][5].get<int>()), 100}};
  reply = server_->PostJson("/v1/completions", request);
  EXPECT_NE(reply["choices"][0]["text"], golden["greedy_text"]);

  json drawn = {{"prompt", "ROMEO:"}, {"max_tokens", 12}, {"temperature", 1.5}, {"seed", 7}};
  const json one = server_->PostJson("/v1/completions", drawn);
  EXPECT_EQ(server_->PostJson("/v1/completions", drawn)["choices"][0]["text"],
            one["choices"][0]["text"]);
  drawn["seed"] = 8;
  EXPECT_NE(server_->PostJson("/v1/completions", drawn)["choices"][0]["text"],
            one["choices"][0]["text"]);
}

TEST_F(ServeTest, LogprobsOfBothKinds) {
  json reply = server_->PostJson("/v1/completions", {{"prompt", "ROMEO:"},
                                                     {"max_tokens", 4},
                                                     {"temperature", 0},
                                                     {"logprobs", 2},
                                                     {"ignore_eos", true}});
  const json logprobs = reply["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 4u);
  EXPECT_LE(logprobs["token_logprobs"][0], 0.0);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  const json chat = {{"messages", {{{"role", "user"}, {"content", "Who is there?"}}}},
                     {"max_tokens", 3},
                     {"temperature", 0},
                     {"logprobs", true},
                     {"top_logprobs", 3},
                     {"ignore_eos", true}};
  reply = server_->PostJson("/v1/chat/completions", chat);
  const json content = reply["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 3u);
  EXPECT_EQ(content[0]["token"], content[0]["top_logprobs"][0]["token"]);
  EXPECT_TRUE(content[0]["bytes"].is_array());
}

TEST_F(ServeTest, ChatsInOnePieceAndInMany) {
  std::ifstream file(LONGSPAN_SOURCE_DIR "/examples/hidden_number.json");
  json request = json::parse(file);
  // Its end holds the question; the beginning would take long here.
  std::string text = request["messages"].back()["content"];
  request = {{"messages", {{{"role", "user"}, {"content", text.substr(text.size() - 3000)}}}},
             {"max_completion_tokens", 24},
             {"temperature", 0}};
  const json reply = server_->PostJson("/v1/chat/completions", request);
  EXPECT_EQ(reply["object"], "chat.completion");
  const json& choice = reply["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  const std::string content = choice["message"]["content"];
  EXPECT_FALSE(content.empty());

  request["stream_options"] = {{"include_usage", true}};
  const auto events = server_->Stream("/v1/chat/completions", request);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  std::string streamed;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json& delta = events[i]["choices"][0]["delta"];
    if (delta.contains("content")) streamed += delta["content"].get<std::string>();
  }
  EXPECT_EQ(streamed, content);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], choice["finish_reason"]);
  EXPECT_EQ(events.back()["usage"]["prompt_tokens"], reply["usage"]["prompt_tokens"]);
}

TEST_F(ServeTest, TellsOfALongPrefill) {
  json ids = json::array();
  for (int i = 0; i < 1500; ++i) ids.push_back(3 + i * 7 % 900);
  const auto events = server_->Stream(
      "/v1/completions",
      {{"prompt", ids}, {"max_tokens", 2}, {"stream_options", {{"include_progress", true}}}});
  int64_t last = 0;
  int reports = 0;
  for (const json& event : events) {
    if (!event.contains("prompt_progress")) continue;
    ++reports;
    EXPECT_EQ(event["prompt_progress"]["total"], 1500);
    EXPECT_GT(event["prompt_progress"]["processed"], last);
    last = event["prompt_progress"]["processed"];
  }
  EXPECT_GE(reports, 10);
  EXPECT_EQ(last, 1500);
}

TEST_F(ServeTest, RefusalsSayWhatIsWrong) {
  const auto refusal = [&](const std::string& path, const json& body, int status) {
    const HttpReply reply = server_->Post(path, body);
    EXPECT_EQ(reply.status, status) << reply.body;
    const json error = ParseJsonText(reply.body)["error"];
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key));
    return error;
  };
  const json prompt = "x";
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", prompt}, {"n", "two"}}, 400)["param"], "n");
  EXPECT_THAT(refusal("/v1/completions", {{"prompt", prompt}, {"suffix", "y"}}, 400)["message"]
                  .get<std::string>(),
              HasSubstr("'suffix'"));
  EXPECT_EQ(refusal("/v1/completions", {{"prompt", prompt}, {"guided_regex", "a+"}}, 400)["param"],
            "guided_regex");
  EXPECT_THAT(refusal("/v1/completions", {{"prompt", prompt}, {"temperature", -1}}, 400)["message"]
                  .get<std::string>(),
              HasSubstr("temperature"));
  EXPECT_EQ(refusal("/v1/completions", json::object(), 400)["param"], "prompt");
  EXPECT_EQ(refusal("/v1/chat/completions", {{"messages", json::array()}}, 400)["param"],
            "messages");
  const json long_prompt(50000, 5);
  const json error = refusal("/v1/completions", {{"prompt", long_prompt}}, 400);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("40960"));
  EXPECT_EQ(HttpClient(server_->port()).Post("/v1/completions", "{").status, 400);
  EXPECT_EQ(server_->Get("/v1/nothing").status, 404);
  // Null, neutral and unknown fields pass.
  server_->PostJson("/v1/completions", {{"prompt", prompt},
                                        {"max_tokens", 1},
                                        {"suffix", nullptr},
                                        {"logprobs", nullptr},
                                        {"best_of", 1},
                                        {"lora_path", nullptr},
                                        {"user", "me"},
                                        {"response_format", {{"type", "text"}}},
                                        {"no_such_field", 5}});
}

TEST_F(ServeTest, TheNativeEndpointIsCumulative) {
  const json golden = GoldenCase("needle300");
  const json params = {{"max_new_tokens", 32}, {"temperature", 0}};
  const json reply =
      server_->PostJson("/generate", {{"input_ids", golden["ids"]}, {"sampling_params", params}});
  EXPECT_EQ(reply["text"], golden["greedy_text"]);
  EXPECT_EQ(reply["output_ids"], golden["greedy"]);
  EXPECT_EQ(reply["meta_info"]["prompt_tokens"], golden["ids"].size());
  EXPECT_EQ(reply["meta_info"]["completion_tokens"], golden["greedy"].size());
  EXPECT_EQ(reply["meta_info"]["finish_reason"]["type"], "stop");
  // As benchmark clients send it.
  const auto events = server_->Stream("/generate", {{"input_ids", golden["ids"]},
                                                    {"sampling_params", params},
                                                    {"lora_path", nullptr},
                                                    {"return_logprob", false},
                                                    {"return_routed_experts", false},
                                                    {"logprob_start_len", -1}});
  std::string text;
  for (const json& event : events) {
    EXPECT_THAT(event["text"].get<std::string>(), StartsWith(text));
    text = event["text"];
    EXPECT_TRUE(event["meta_info"]["completion_tokens"].is_number());
  }
  EXPECT_EQ(text, golden["greedy_text"]);
  const json batch = server_->PostJson(
      "/generate", {{"text", {"To be", "ROMEO:"}}, {"sampling_params", {{"max_new_tokens", 2}}}});
  EXPECT_EQ(batch.size(), 2u);
}

TEST_F(ServeTest, TokensThereAndBack) {
  const json tokens = server_->PostJson("/tokenize", {{"prompt", "To be, or not to be"}});
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(server_->PostJson("/detokenize", {{"tokens", tokens["tokens"]}})["text"],
            "To be, or not to be");
  const json usage = server_->PostJson(
      "/v1/completions", {{"prompt", "To be, or not to be"}, {"max_tokens", 1}})["usage"];
  EXPECT_EQ(usage["prompt_tokens"], tokens["count"]);
  const json messages = {{{"role", "user"}, {"content", "Hello"}}};
  const json chat = server_->PostJson("/tokenize", {{"messages", messages}});
  EXPECT_EQ(
      server_->PostJson("/v1/chat/completions",
                        {{"messages", messages}, {"max_tokens", 1}})["usage"]["prompt_tokens"],
      chat["count"]);
}

TEST_F(ServeTest, TellsAboutItself) {
  const json models = ParseJsonText(server_->Get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 40960);
  EXPECT_EQ(server_->Get("/v1/models/tiny").status, 200);
  EXPECT_EQ(server_->Get("/v1/models/other").status, 404);
  EXPECT_TRUE(ParseJsonText(server_->Get("/model_info").body)["is_generation"]);
  const json info = ParseJsonText(server_->Get("/server_info").body);
  EXPECT_EQ(info["pp_size"], 2);
  EXPECT_EQ(info["max_total_num_tokens"], 32768);
  EXPECT_EQ(info["internal_states"].size(), 1u);
  EXPECT_EQ(server_->Get("/health_generate").status, 200);
  EXPECT_EQ(ParseJsonText(server_->Get("/openapi.json").body)["openapi"], "3.1.0");
  // Numbers of the engine are up to a tenth of a second old.
  for (int i = 0; i < 200 && server_->Metric("longspan_plans_total") == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(server_->Metric("longspan_plans_total"), 0);
  server_->ExpectNothingRuns();
  EXPECT_EQ(HttpClient(server_->port()).Post("/flush_cache?timeout=5", "").status, 200);
}

TEST_F(ServeTest, TheNumbersOfThePipeline) {
  json ids = json::array();
  for (int i = 0; i < 2000; ++i) ids.push_back(3 + i * 17 % 900);
  const double measured = server_->Metric("longspan_prefill_chunk_measured_seconds_total");
  const double chunks = server_->Metric("longspan_prefill_chunk_error_ratio_count");
  const double sent = server_->Metric("longspan_boundary_sent_bytes_total{stage=\"0\"}");
  server_->PostJson("/v1/completions", {{"prompt", ids}, {"max_tokens", 1}});
  // 16 chunks of 128, of which the first two predict the third.
  server_->ExpectMetric("longspan_prefill_chunk_error_ratio_count", chunks + 14);
  EXPECT_GT(server_->Metric("longspan_prefill_chunk_measured_seconds_total"), measured);
  EXPECT_GT(server_->Metric("longspan_prefill_chunk_predicted_seconds_total"), 0);
  server_->ExpectNothingRuns();
  // At least 256 numbers of two bytes for every token.
  EXPECT_GE(server_->Metric("longspan_boundary_sent_bytes_total{stage=\"0\"}"),
            sent + 2000 * 256 * 2);
  EXPECT_GT(server_->Metric("longspan_bubble_ratio"), 0);
  EXPECT_LT(server_->Metric("longspan_bubble_ratio"), 1);
}

// The commands of README.md that are meant to be typed.
TEST_F(ServeTest, TheExamplesOfTheReadmeWork) {
  if (std::system("command -v curl > /dev/null") != 0) GTEST_SKIP() << "there is no curl";
  std::ifstream file(LONGSPAN_SOURCE_DIR "/README.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  int examples = 0;
  const std::string begin = "```sh\ncurl";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
    std::string command = text.substr(at + 6, text.find("```", at + 6) - at - 6);
    const size_t port = command.find(":30000");
    ASSERT_NE(port, std::string::npos) << command;
    command.replace(port, 6, ":" + std::to_string(server_->port()));
    const Outcome outcome = RunProgram({"-c", command}, {.program = "/bin/sh"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_THAT(outcome.output, HasSubstr("\"choices\"")) << command;
    EXPECT_THAT(outcome.output, HasSubstr("\"finish_reason\":\"")) << command;
    ++examples;
  }
  EXPECT_EQ(examples, 2);
}

TEST_F(ServeTest, AClientThatGoesFreesItsPages) {
  json ids = json::array();
  for (int i = 0; i < 20000; ++i) ids.push_back(3 + i * 11 % 900);
  for (const bool stream : {false, true}) {
    HttpClient client(server_->port());
    client.Send(RequestText("POST", "/v1/completions",
                            json{{"prompt", ids}, {"max_tokens", 100}, {"stream", stream}}.dump()));
    for (int i = 0; i < 200 && server_->Metric("longspan_running_requests") == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(server_->Metric("longspan_running_requests"), 1);
    client.Close();
    server_->ExpectNothingRuns();
  }
}

TEST_F(ServeTest, ARequestCanBeAborted) {
  HttpClient client(server_->port());
  client.Send(
      RequestText("POST", "/generate",
                  json{{"text", "ROMEO:"},
                       {"rid", "mine"},
                       {"stream", true},
                       {"sampling_params", {{"max_new_tokens", 30000}, {"ignore_eos", true}}}}
                      .dump()));
  EXPECT_THAT(client.ReadUntil("data: "), HasSubstr("200 OK"));
  EXPECT_EQ(server_->Post("/abort_request", {{"rid", "mine"}}).status, 200);
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr(R"("type":"abort")"));
  server_->ExpectNothingRuns();
}

}  // namespace
}  // namespace longspan::testing
