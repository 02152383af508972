// The ends of `longspan serve` and of its requests: signals, full queues, lost stages, cut
// connections.
#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/running_server.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(ServeEndTest, ASignalDrainsAndASecondOneEnds) {
  for (const bool twice : {false, true}) {
    RunningServer server({"--dtype", "f32"});
    HttpClient client(server.port());
    const int tokens = twice ? 30000 : 500;
    client.Send(RequestText(
        "POST", "/v1/completions",
        json{{"prompt", "ROMEO:"}, {"max_tokens", tokens}, {"ignore_eos", true}, {"stream", true}}
            .dump()));
    client.ReadUntil("data: ");
    kill(server.pid(), SIGTERM);
    if (twice) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      kill(server.pid(), SIGTERM);
      EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr(R"("finish_reason":"abort")"));
    } else {
      EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr(R"("finish_reason":"length")"));
    }
    const Outcome outcome = server.Wait();
    EXPECT_EQ(outcome.exit_code, twice ? 1 : 0) << outcome.errors;
    EXPECT_TRUE(outcome.left.empty());
  }
}

TEST(ServeEndTest, AnUploadThatASignalOvertakesIsAnswered) {
  RunningServer server;
  const std::string request =
      RequestText("POST", "/v1/completions", json{{"prompt", std::string(100000, 'x')}}.dump());
  HttpClient client(server.port());
  client.Send(std::string_view(request).substr(0, 50000));
  server.ExpectMetric("longspan_connections", 2);  // and that which asks
  kill(server.pid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  client.Send(std::string_view(request).substr(50000));
  const HttpReply reply = client.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("shutting down"));
  EXPECT_EQ(server.Wait().exit_code, 0);
}

TEST(ServeEndTest, AtTheLimitOfConnectionsHealthStillAnswers) {
  const RunningServer server({"--max-connections", "2"});
  const std::string stream = RequestText(
      "POST", "/v1/completions",
      json{{"prompt", "x"}, {"max_tokens", 20000}, {"ignore_eos", true}, {"stream", true}}.dump());
  HttpClient busy(server.port());
  busy.Send(stream);
  busy.ReadUntil("data: ");
  HttpClient idle(server.port());
  EXPECT_EQ(idle.Get("/health").status, 200);
  EXPECT_EQ(server.Get("/health").status, 200);
  HttpClient busy_too(server.port());
  busy_too.Send(stream);
  busy_too.ReadUntil("data: ");
  const HttpReply refused = server.Get("/health");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
}

TEST(ServeEndTest, AFullQueueIsToldWithATime) {
  RunningServer server({"--max-running-requests", "1", "--max-queued-requests", "1"});
  const std::string body =
      RequestText("POST", "/v1/completions",
                  json{{"prompt", "ROMEO:"}, {"max_tokens", 20000}, {"ignore_eos", true}}.dump());
  HttpClient running(server.port());
  running.Send(body);
  while (server.Metric("longspan_running_requests") == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  HttpClient queued(server.port());
  queued.Send(body);
  while (server.Metric("longspan_queued_requests") == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  HttpClient refused(server.port());
  refused.Send(body);
  const HttpReply reply = refused.Read();
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.headers.count("retry-after"), 1u);
  // Full, but getting on: said at once.
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(server.Get("/health_generate").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  // One that can never be queued is told so.
  const HttpReply batch =
      server.Post("/v1/completions", {{"prompt", {"a", "b", "c"}}, {"max_tokens", 2}});
  EXPECT_EQ(batch.status, 400);
  EXPECT_THAT(batch.body, HasSubstr("--max-queued-requests"));
}

// What a stream of completions says, whole or from somewhere on.
std::string TextOf(const std::string& stream) {
  HttpReply reply;
  reply.body = stream;
  std::string text;
  for (const std::string& event : reply.Events())
    if (event != "[DONE]") text += ParseJsonText(event)["choices"][0]["text"].get<std::string>();
  return text;
}

TEST(ServeEndTest, EightStreamsSurviveTheLossOfEachStage) {
  const RunningServer server({"--pp-size", "2", "--dtype", "f32"});
  const auto request = [](int stream) {
    return json{{"prompt", fmt::format("ROMEO {}:", stream)},
                {"max_tokens", 250},
                {"temperature", 0},
                {"ignore_eos", true},
                {"stream", true}};
  };
  constexpr int kStreams = 8;
  std::vector<std::string> expected;
  for (int i = 0; i < kStreams; ++i)
    expected.push_back(TextOf(server.Post("/v1/completions", request(i)).body));
  for (const size_t victim : {size_t{0}, size_t{1}}) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < kStreams; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      clients.back()->Send(RequestText("POST", "/v1/completions", request(i).dump()));
    }
    for (const auto& client : clients) client->ReadUntil("data: ");
    kill(server.program().WaitForStages(2)[victim], SIGKILL);
    for (size_t i = 0; i < clients.size(); ++i)
      EXPECT_EQ(TextOf(std::string("data: ").append(clients[i]->ReadUntil("[DONE]"))), expected[i])
          << "stage " << victim << ", stream " << i;
    EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 2}}).status, 200);
    server.ExpectNothingRuns();
  }
}

TEST(ServeEndTest, WithoutReplayStreamsEndWithTheError) {
  RunningServer server({"--pp-size", "2", "--dtype", "f32", "--no-replay"});
  HttpClient client(server.port());
  client.Send(RequestText(
      "POST", "/v1/completions",
      json{{"prompt", "ROMEO:"}, {"max_tokens", 20000}, {"ignore_eos", true}, {"stream", true}}
          .dump()));
  client.ReadUntil("data: ");
  kill(server.program().WaitForStages(2)[1], SIGKILL);
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr(R"("error":{"message":"the engine failed)"));
  // Whoever watches the server is to start it again.
  EXPECT_EQ(server.Wait().exit_code, 1);
}

TEST(ServeUsageTest, TheLaunchFlagsOfOthersAreKnown) {
  const Outcome outcome =
      RunProgram({"serve",
                  "--model-path",
                  "M",
                  "--trust-remote-code",
                  "--nnodes",
                  "4",
                  "--node-rank",
                  "0",
                  "--tp",
                  "8",
                  "--pp-size",
                  "4",
                  "--port",
                  "30000",
                  "--dist-init-addr",
                  "host:1234",
                  "--mem-fraction-static",
                  "0.8",
                  "--attention-backend",
                  "fa3",
                  "--host",
                  "0.0.0.0",
                  "--watchdog-timeout",
                  "3600",
                  "--max-running-requests",
                  "128",
                  "--chunked-prefill-size",
                  "12288",
                  "--enable-dynamic-chunking"},
                 {.environment = {{"SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR", "0.65"},
                                  {"SGLANG_PP_LAYER_PARTITION", "15,15,15,16"}}});
  // All that is wrong is that there is no such model.
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("'M'"));
}

// Requests that are cut before their head ends, in prefill, and between tokens.
TEST(ServeEndTest, AStormOfAbortsLeavesNothingBehind) {
  const RunningServer server({"--pp-size", "2", "--dtype", "f32", "--max-total-tokens", "16384",
                              "--chunked-prefill-size", "64"});
  const json golden = GoldenCase("needle300");
  const json asked = {{"prompt", golden["ids"]}, {"max_tokens", 32}, {"temperature", 0}};
  std::mt19937 random(5);
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  constexpr int kClients = 4;
  constexpr int kRounds = 125;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, seed = random()] {
      std::mt19937 draw(seed);
      for (int round = 0; round < kRounds; ++round) {
        json ids = json::array();
        for (int i = 0; i < 400; ++i) ids.push_back(3 + draw() % 900);
        const std::string text = RequestText("POST", "/v1/completions",
                                             json{{"prompt", ids},
                                                  {"max_tokens", 50},
                                                  {"n", 1 + draw() % 3},
                                                  {"ignore_eos", true},
                                                  {"stream", draw() % 2 == 0}}
                                                 .dump());
        HttpClient client(server.port());
        client.Send(text.substr(0, draw() % 3 == 0 ? draw() % text.size() : text.size()));
        std::this_thread::sleep_for(std::chrono::milliseconds(draw() % 30));
        client.Close(/*reset=*/draw() % 2 == 0);
        if (round % 25 == 5 && server.PostJson("/v1/completions", asked)["choices"][0]["text"] ==
                                   golden["greedy_text"])
          ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, kClients * kRounds / 25);
  server.ExpectNothingRuns();
  const double submitted = server.Metric("longspan_sequences_total");
  EXPECT_GT(submitted, kClients * kRounds / 2);
  EXPECT_EQ(server.Metric("longspan_sequences_finished_total") +
                server.Metric("longspan_sequences_aborted_total") +
                server.Metric("longspan_sequences_failed_total"),
            submitted);
  server.ExpectMetric("longspan_connections", 1);
  EXPECT_EQ(server.Post("/flush_cache?timeout=5", json::object()).status, 200);
  server.ExpectMetric("longspan_kv_cached_tokens", 0);
}

}  // namespace
}  // namespace longspan::testing
