// What strangers and careless clients send to `longspan serve`.
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/running_server.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

double ResidentMib(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  return 0;
}

TEST(ServeKeyTest, WithoutAKeyNothingReachesTheEngine) {
  const RunningServer server(
      {"--api-key", "right key", "--api-key", "other", "--metrics-require-key"});
  const std::string right = "Authorization: Bearer right key\r\n";
  const json description = ParseJsonText(server.Get("/openapi.json").body);
  const std::string body =
      json{{"prompt", "x"}, {"text", "x"}, {"max_tokens", 2}, {"messages", json::array()}}.dump();
  int refused = 0;
  for (const char* key : {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer \r\n",
                          "Authorization: right key\r\n", "Authorization: Basic right key\r\n",
                          "Authorization: Bearer right key \x01\r\n", "X-API-Key: right\r\n",
                          "Authorization: Bearer wrong\r\nAuthorization: Bearer right key\r\n",
                          "X-API-Key: right key\r\nX-API-Key: right key\r\n"}) {
    for (const auto& [path, methods] : description["paths"].items()) {
      if (path == "/" || path == "/health" || path == "/ping" || path == "/openapi.json") continue;
      for (const auto& [name, operation] : methods.items()) {
        const bool posts = name == "post" || name == "put";
        HttpClient client(server.port());
        const HttpReply reply = client.Request(name == "get" ? "GET" : (posts ? "POST" : "PUT"),
                                               path, posts ? body : std::string(), key);
        EXPECT_TRUE(reply.status == 401 || reply.status == 400 || reply.status == 405)
            << path << " " << key << reply.status;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
  // Nor does it come in the wake of one that has one.
  HttpClient client(server.port());
  client.Send(RequestText("POST", "/v1/completions", body, right) +
              RequestText("POST", "/v1/completions", body));
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Read().status, 401);
  EXPECT_EQ(client.Read().status, 0);
  const std::string numbers =
      HttpClient(server.port()).Request("GET", "/metrics", {}, "X-API-Key: other\r\n").body;
  EXPECT_THAT(numbers, HasSubstr("\nlongspan_sequences_total 1\n"));
  EXPECT_THAT(numbers, HasSubstr("\nlongspan_prompt_tokens_total 1\n"));
}

// One for all tests of this suite.
class ServeHostileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<RunningServer>(
        std::vector<std::string>{"--max-body-mib", "2", "--request-timeout", "2"});
  }
  static void TearDownTestSuite() { server_.reset(); }
  // It is as it was.
  void TearDown() override {
    EXPECT_EQ(server_->Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 2}}).status, 200);
    server_->ExpectMetric("longspan_connections", 1);  // the one that asks
    server_->ExpectNothingRuns();
  }

  static int PostRaw(const std::string& path, const std::string& body) {
    return HttpClient(server_->port()).Post(path, body).status;
  }

  static std::unique_ptr<RunningServer> server_;
};
std::unique_ptr<RunningServer> ServeHostileTest::server_;

TEST_F(ServeHostileTest, BodiesThatAreNoRequests) {
  const std::string deep(500'000, '[');
  std::string nested = "\"x\"";
  for (int i = 0; i < 200; ++i) nested = "{\"a\":" + nested + "}";
  const std::string cases[] = {"",
                               "{",
                               "null",
                               "[]",
                               "\"prompt\"",
                               "5",
                               deep,
                               "{\"prompt\":" + deep,
                               "{\"prompt\":" + nested + "}",
                               "{\"prompt\":\"\xff\xfe\"}",
                               "{\"prompt\":\"\xed\xa0\x80\"}",
                               "{\"prompt\":\"\\ud800\"}",
                               std::string("{\"prompt\":\"a\0b\"}", 16),
                               std::string("\0\0\0\0", 4),
                               "{\"prompt\":\"x\"} {\"prompt\":\"y\"}",
                               "{\"prompt\":\"x\",\"max_tokens\":1e999}",
                               "{\"prompt\":\"x\",\"max_tokens\":-5}",
                               "{\"prompt\":\"x\",\"max_tokens\":99999999999999999999}",
                               "{\"prompt\":\"x\",\"temperature\":\"hot\"}",
                               "{\"prompt\":\"x\",\"n\":100000000}",
                               "{\"prompt\":[1,2,99999999999]}",
                               "{\"prompt\":[[[[1]]]]}",
                               "{\"prompt\":{\"a\":1}}"};
  for (const std::string& body : cases) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/generate", "/tokenize",
                             "/detokenize", "/abort_request"}) {
      const int status = PostRaw(path, body);
      EXPECT_TRUE(status == 400 || (status == 200 && std::string_view(path) == "/tokenize"))
          << path << " " << body.substr(0, 60) << ": " << status;
    }
  }
  // Odd, and allowed.
  EXPECT_EQ(PostRaw("/v1/completions", R"({"prompt":"a\u0000b","max_tokens":1})"), 200);
  EXPECT_EQ(PostRaw("/v1/completions", R"({"prompt":"x","prompt":"y","max_tokens":1})"), 200);
}

TEST_F(ServeHostileTest, AGigabyteIsRefusedAndNotKept) {
  const double before = ResidentMib(server_->pid());
  HttpClient told(server_->port());
  told.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n{");
  EXPECT_EQ(told.Read().status, 413);
  // The same without saying so. What comes behind the limit is dropped, for a while.
  HttpClient client(server_->port());
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(0x100000, ' ') + "\r\n";
  for (int i = 0; i < 1024 && client.Send(chunk); ++i) {
    if (i != 3) continue;
    EXPECT_EQ(client.Read().status, 413);
  }
  EXPECT_LT(ResidentMib(server_->pid()) - before, 64);
}

TEST_F(ServeHostileTest, HalfOpenConnectionsAreLeftInTime) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    HttpClient& client = *clients.back();
    if (i % 4 == 0) client.Send("POST /v1/comple");
    if (i % 4 == 1)
      client.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    if (i % 4 == 2)
      client.Send(
          "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
    // One byte now and then does not help.
    if (i % 4 == 3) client.Send("G");
  }
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (size_t c = 3; c < clients.size(); c += 4) clients[c]->Send("E");
    EXPECT_EQ(server_->Get("/health").status, 200);
  }
  for (const auto& client : clients) {
    EXPECT_EQ(client->Read().status, 408);
    EXPECT_TRUE(client->ReadsEnd());
  }
}

TEST_F(ServeHostileTest, PipelinedRequestsAreAnsweredInOrder) {
  HttpClient client(server_->port());
  std::string text;
  for (int i = 1; i <= 20; ++i)
    text += RequestText(
        "POST", "/v1/completions",
        json{{"prompt", json::array({i})}, {"max_tokens", i}, {"ignore_eos", true}}.dump());
  client.Send(text + RequestText("GET", "/health", "") + RequestText("GET", "/nothing", ""));
  for (int i = 1; i <= 20; ++i) {
    const HttpReply reply = client.Read();
    ASSERT_EQ(reply.status, 200);
    EXPECT_EQ(ParseJsonText(reply.body)["usage"]["completion_tokens"], i);
  }
  EXPECT_EQ(client.Read().status, 200);
  EXPECT_EQ(client.Read().status, 404);
}

}  // namespace
}  // namespace longspan::testing
