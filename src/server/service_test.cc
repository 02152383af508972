// What can be said of the endpoints without an engine.
#include "server/service.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openapi.h"

namespace longspan::server {
namespace {

using ::testing::HasSubstr;

class ServiceTest : public ::testing::Test {
 protected:
  static int StatusOf(const std::optional<HttpResponse>& response) {
    return response ? response->status : 0;
  }

  EngineLoop loop_;
  std::unique_ptr<WorkerPool> pool_ = std::move(WorkerPool::Create(1, 1)).value();
};

HttpRequest Head(std::string method, std::string path, std::string key = {}) {
  HttpRequest head{.method = std::move(method), .path = std::move(path)};
  if (!key.empty()) head.headers.emplace_back("authorization", std::move(key));
  return head;
}

TEST_F(ServiceTest, TheDescriptionHasTheRoutesAndNoOthers) {
  Service service({}, loop_, *pool_);
  std::set<std::pair<std::string, std::string>> described;
  const Json document = OpenApiDocument("1");
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      std::string capitals = method;
      for (char& c : capitals) c = static_cast<char>(std::toupper(c));
      described.emplace(path, capitals);
      EXPECT_TRUE(operation.contains("summary"));
    }
  }
  const auto routes = service.Routes();
  EXPECT_EQ(described, std::set(routes.begin(), routes.end()));
}

TEST_F(ServiceTest, WhileStartingAndEndingNothingIsServed) {
  Service service({}, loop_, *pool_);
  EXPECT_EQ(StatusOf(service.CheckHead(Head("POST", "/v1/completions"))), 503);
  EXPECT_EQ(StatusOf(service.CheckHead(Head("GET", "/health"))), 0);
  const ServedModel model;
  service.SetModel(model);
  EXPECT_EQ(StatusOf(service.CheckHead(Head("POST", "/v1/completions"))), 0);
  service.BeginDrain();
  EXPECT_EQ(StatusOf(service.CheckHead(Head("POST", "/v1/completions"))), 503);
}

TEST_F(ServiceTest, WrongPathsAndMethods) {
  Service service({}, loop_, *pool_);
  EXPECT_EQ(StatusOf(service.CheckHead(Head("GET", "/nothing"))), 404);
  const auto response = service.CheckHead(Head("GET", "/v1/completions"));
  ASSERT_EQ(StatusOf(response), 405);
  EXPECT_EQ(response->headers[0], std::pair(std::string("Allow"), std::string("POST")));
  EXPECT_EQ(StatusOf(service.CheckHead(Head("HEAD", "/health"))), 0);
}

TEST_F(ServiceTest, WithoutTheKeyNothingButHealthIsThere) {
  Service service({.api_keys = {"right", "other"}}, loop_, *pool_);
  const ServedModel model;
  service.SetModel(model);
  for (const char* key : {"", "Bearer wrong", "Bearer righ", "Bearer rightt", "right", "Bearer "})
    for (const auto& [path, method] : service.Routes()) {
      const bool open = path == "/health" || path == "/ping" || path == "/metrics" ||
                        path == "/openapi.json" || path == "/";
      EXPECT_EQ(StatusOf(service.CheckHead(Head(method, path, key))), open ? 0 : 401)
          << path << " '" << key << "'";
    }
  // Nor can one find out what is there.
  EXPECT_EQ(StatusOf(service.CheckHead(Head("GET", "/nothing"))), 401);
  for (const char* key : {"Bearer right", "bearer other"})
    EXPECT_EQ(StatusOf(service.CheckHead(Head("GET", "/v1/models", key))), 0);
  Service strict({.api_keys = {"right"}, .metrics_need_key = true}, loop_, *pool_);
  EXPECT_EQ(StatusOf(strict.CheckHead(Head("GET", "/metrics"))), 401);
}

TEST_F(ServiceTest, BodiesAreJsonByTheirKindOrAtLeastNotAPages) {
  Service service({}, loop_, *pool_);
  const ServedModel model;
  service.SetModel(model);
  const auto status = [&](const char* type, const char* origin = nullptr) {
    HttpRequest head = Head("POST", "/v1/completions");
    head.headers.emplace_back("host", "a.example:8000");
    if (type != nullptr) head.headers.emplace_back("content-type", type);
    if (origin != nullptr) head.headers.emplace_back("origin", origin);
    return StatusOf(service.CheckHead(head));
  };
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/vnd.api+json", "application/x-www-form-urlencoded"})
    EXPECT_EQ(status(type), 0) << type;
  EXPECT_EQ(status(nullptr), 0);
  for (const char* type : {"text/plain", "multipart/form-data; boundary=x", "application/xml",
                           "application/jsonx", "+json", ""})
    EXPECT_EQ(status(type), 415) << type;
  const char* own = "http://A.example:8000";
  EXPECT_EQ(status("application/json", own), 0);
  EXPECT_EQ(status("application/x-www-form-urlencoded", own), 415);
  for (const char* origin : {"http://b.example:8000", "http://a.example", "null", "", "http://",
                             "http://a.example:80000", "file://"})
    for (const char* type : {"application/json", "application/x-www-form-urlencoded", "text/plain"})
      EXPECT_EQ(status(type, origin), 403) << origin;
}

TEST_F(ServiceTest, NoRouteAnswersPagesOfOtherSites) {
  Service service({}, loop_, *pool_);
  const ServedModel model;
  service.SetModel(model);
  for (const auto& [path, method] : service.Routes()) {
    HttpRequest head = Head(method, path);
    head.headers = {{"host", "a.example"}, {"origin", "https://b.example"}};
    EXPECT_EQ(StatusOf(service.CheckHead(head)), 403) << path;
    head.headers = {{"host", "a.example"}, {"origin", "https://a.example:443"}};
    EXPECT_EQ(StatusOf(service.CheckHead(head)), 0) << path;
  }
}

TEST_F(ServiceTest, ErrorsHaveOpenAisShape) {
  Service service({}, loop_, *pool_);
  const HttpResponse refusal = service.Refusal(429, "too much");
  const Json error = ParseJson(refusal.body).value()["error"];
  EXPECT_EQ(error["message"], "too much");
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_TRUE(error.contains("param"));
  EXPECT_EQ(error["code"], "rate_limit_exceeded");
  EXPECT_EQ(refusal.headers[0].first, "Retry-After");
}

TEST(MetricsTest, BucketsAreCumulated) {
  Metrics metrics;
  metrics.OnRequest("/v1/completions", 200);
  metrics.OnFirstToken(0.003);
  metrics.OnFirstToken(0.3);
  metrics.OnFinish(1.0, {.reason = engine::FinishReason::kStop,
                         .prompt_tokens = 100,
                         .completion_tokens = 20,
                         .info = {.cached_tokens = 64},
                         .chunks = {{.predicted_s = 0.5, .measured_s = 1.0}}});
  const std::string text = metrics.Text({}, 3);
  EXPECT_THAT(text, HasSubstr("# TYPE longspan_time_to_first_token_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("longspan_time_to_first_token_seconds_bucket{le=\"0.005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longspan_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("longspan_time_to_first_token_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("longspan_cached_tokens_total 64\n"));
  EXPECT_THAT(
      text, HasSubstr("longspan_http_requests_total{path=\"/v1/completions\",status=\"200\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("longspan_connections 3\n"));
  EXPECT_THAT(text, HasSubstr("longspan_prefill_chunk_predicted_seconds_total 0.5\n"));
  EXPECT_THAT(text, HasSubstr("longspan_prefill_chunk_measured_seconds_total 1\n"));
  EXPECT_THAT(text, HasSubstr("longspan_prefill_chunk_error_ratio_bucket{le=\"0.2\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("longspan_prefill_chunk_error_ratio_bucket{le=\"0.5\"} 1\n"));
}

TEST(MetricsTest, RanksAreToldByStage) {
  EngineSnapshot engine;
  engine.counters.ranks.resize(4);
  engine.counters.ranks[2].sent_bytes = 77;
  EXPECT_THAT(Metrics().Text(engine, 0),
              HasSubstr("longspan_boundary_sent_bytes_total{stage=\"2\"} 77\n"));
  EXPECT_THAT(Metrics(2).Text(engine, 0),
              HasSubstr("longspan_boundary_sent_bytes_total{stage=\"1\",rank=\"2\"} 77\n"));
}

TEST(MetricsTest, EverySequenceEndsOnce) {
  Metrics metrics;
  metrics.OnSubmitted(7);
  metrics.OnFinish(1, {.reason = engine::FinishReason::kStop});
  metrics.OnFinish(1, {.reason = engine::FinishReason::kAbort});
  metrics.OnGone(2);
  metrics.OnFailed(3);
  const std::string text = metrics.Text({}, 0);
  EXPECT_THAT(text, HasSubstr("longspan_sequences_total 7\n"));
  EXPECT_THAT(text, HasSubstr("longspan_sequences_finished_total 1\n"));
  EXPECT_THAT(text, HasSubstr("longspan_sequences_aborted_total 3\n"));
  EXPECT_THAT(text, HasSubstr("longspan_sequences_failed_total 3\n"));
}

TEST(HttpMessageTest, QueryValues) {
  EXPECT_EQ(QueryValue("a=1&timeout=2.5&b", "timeout"), "2.5");
  EXPECT_EQ(QueryValue("x=%41+%zz", "x"), "A %zz");
  EXPECT_EQ(QueryValue("", "x"), "");
  EXPECT_EQ(QueryValue("xy=1", "x"), "");
}

}  // namespace
}  // namespace longspan::server
