#include "tests/process/running_server.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::testing {

using nlohmann::json;

json GoldenCase(const std::string& name) {
  std::ifstream file(LONGSPAN_SOURCE_DIR "/tests/data/golden/tiny-qwen3-moe.json");
  for (const json& golden : json::parse(file))
    if (golden["name"] == name) return golden;
  ADD_FAILURE() << "no golden case " << name;
  return {};
}

json ParseJsonText(const std::string& text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(parsed.is_discarded()) << text;
  return parsed;
}

RunningServer::RunningServer(std::vector<std::string> flags) : port_(FreePort()) {
  flags.insert(flags.begin(), {"serve", "--port", std::to_string(port_), "--log-level", "error"});
  program_ = std::make_unique<RunningProgram>(flags);
  for (int i = 0; i < 600 && Get("/health").status != 200; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

RunningServer::~RunningServer() {
  if (program_ != nullptr) kill(program_->pid(), SIGKILL);
}

Outcome RunningServer::Wait() {
  Outcome outcome = program_->Wait();
  program_.reset();
  return outcome;
}

json RunningServer::PostJson(const std::string& path, const json& body) const {
  const HttpReply reply = Post(path, body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return ParseJsonText(reply.body);
}

std::vector<json> RunningServer::Stream(const std::string& path, json body) const {
  body["stream"] = true;
  const HttpReply reply = Post(path, body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const auto type = reply.headers.find("content-type");
  EXPECT_TRUE(type != reply.headers.end() && type->second.starts_with("text/event-stream"));
  EXPECT_TRUE(reply.body.ends_with("data: [DONE]\n\n")) << reply.body;
  std::vector<json> events;
  for (const std::string& event : reply.Events())
    if (event != "[DONE]") events.push_back(ParseJsonText(event));
  return events;
}

double RunningServer::Metric(const std::string& name) const {
  std::string text = Get("/metrics").body;
  text.insert(text.begin(), '\n');
  const size_t place = text.find("\n" + name + " ");
  EXPECT_NE(place, std::string::npos) << name;
  return place == std::string::npos ? -1 : std::stod(text.substr(place + name.size() + 2));
}

void RunningServer::ExpectMetric(const std::string& name, double value) const {
  double last = Metric(name);
  for (int i = 0; i < 500 && last != value; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    last = Metric(name);
  }
  EXPECT_EQ(last, value) << name;
}

void RunningServer::ExpectNothingRuns() const {
  ExpectMetric("longspan_kv_used_tokens", 0);
  ExpectMetric("longspan_running_requests", 0);
  ExpectMetric("longspan_queued_requests", 0);
}

}  // namespace longspan::testing
