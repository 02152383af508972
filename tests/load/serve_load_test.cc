// `longspan serve` under load: memory, latencies, and nobody forgotten.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/load/cpu_time.h"
#include "tests/load/stream_crowd.h"
#include "tests/process/running_server.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

double Milliseconds(steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// Resident memory of a server and its stages.
double ResidentMib(const RunningServer& server) {
  double mib = 0;
  for (const pid_t pid : ProcessesOfGroup(server.pid())) {
    std::ifstream file(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("VmRSS:")) mib += std::stod(line.substr(6)) / 1024;
  }
  return mib;
}

double Quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values.empty()
             ? 0
             : values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Asks for /health every few milliseconds while it lives.
class HealthWatch {
 public:
  explicit HealthWatch(uint16_t port)
      : thread_([this, port] {
          HttpClient client(port);
          while (!stop_) {
            const auto begin = steady_clock::now();
            if (client.Get("/health").status != 200) ++failures_;
            const auto answered = steady_clock::now();
            times_.push_back(Milliseconds(answered - begin));
            std::this_thread::sleep_for(kPause);
            delays_.push_back(Milliseconds(steady_clock::now() - answered - kPause));
          }
        }) {}
  HealthWatch(const HealthWatch&) = delete;
  ~HealthWatch() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Of a stopped watch.
  double Quantile(double share) { return testing::Quantile(times_, share); }
  // Whether the machine let this thread go on in time after its pauses: where it did not, neither
  // does it let a server answer in time.
  bool is_quiet() {
    const double delay = testing::Quantile(delays_, 0.99);
    if (delay >= kMostDelay)
      fmt::print("a thread waited for a core for {:.1f} ms: not held to these times\n", delay);
    return delay < kMostDelay;
  }
  size_t count() const { return times_.size(); }
  int failures() const { return failures_; }

 private:
  static constexpr std::chrono::milliseconds kPause{5};
  static constexpr double kMostDelay = 4;

  std::atomic<bool> stop_{false};
  std::vector<double> times_;
  std::vector<double> delays_;
  int failures_ = 0;
  std::thread thread_;
};

std::string StreamRequest(int tokens, int prompt_tokens, int seed) {
  json ids = json::array();
  for (int i = 0; i < prompt_tokens; ++i) ids.push_back(3 + (i * 7 + seed * 13) % 900);
  return RequestText(
      "POST", "/v1/completions",
      json{{"prompt", ids}, {"max_tokens", tokens}, {"ignore_eos", true}, {"stream", true}}.dump());
}

template <typename Condition>
bool Becomes(const Condition& condition, std::chrono::seconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (!condition() && steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

TEST(ServeLoadTest, ThousandsOfIdleStreamsBesideActiveOnes) {
  constexpr int kIdle = 2000;
  constexpr int kActive = 64;
  if (!RaiseOpenFiles(kIdle + kActive + 256)) GTEST_SKIP() << "too few files may be open";
  const RunningServer server({"--max-running-requests", "65", "--max-queued-requests", "4096",
                              "--max-total-tokens", "131072", "--chunked-prefill-size", "256",
                              "--sse-comment-interval", "1"});
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 2}}).status, 200);
  const double before = ResidentMib(server);

  StreamCrowd active(server.port(), [] {
    std::vector<std::string> requests;
    for (int i = 0; i < kActive; ++i) requests.push_back(StreamRequest(400, 16, i));
    return requests;
  }());
  ASSERT_TRUE(Becomes([&] { return active.begun() == kActive; }, std::chrono::seconds(60)));
  auto prefill = std::make_unique<StreamCrowd>(
      server.port(), std::vector<std::string>{StreamRequest(4, 39000, 5)});
  ASSERT_TRUE(Becomes([&] { return server.Metric("longspan_running_requests") == kActive + 1; },
                      std::chrono::seconds(10)));
  StreamCrowd idle(server.port(), [] {
    std::vector<std::string> requests;
    for (int i = 0; i < kIdle; ++i) requests.push_back(StreamRequest(4, 16, i));
    return requests;
  }());
  EXPECT_TRUE(Becomes([&] { return idle.comments() >= kIdle || prefill->begun() > 0; },
                      std::chrono::seconds(120)));
  HealthWatch health(server.port());
  std::this_thread::sleep_for(std::chrono::seconds(5));
  health.Stop();
  const double connections = server.Metric("longspan_connections");
  const double growth = ResidentMib(server) - before;
  const bool still_idle = idle.begun() == 0 && prefill->begun() == 0;
  fmt::print(
      "{} connections, {:.0f} idle streams told to wait, {:.1f} MiB beyond {:.1f}\n"
      "/health {} times: p50 {:.2f} ms, p99 {:.2f} ms, longest {:.2f} ms\n",
      connections, static_cast<double>(idle.comments()), growth, before, health.count(),
      health.Quantile(0.5), health.Quantile(0.99), health.Quantile(1));
  EXPECT_TRUE(still_idle) << "the machine is too fast for this test";
  EXPECT_GE(connections, kIdle + kActive);
  EXPECT_LT(growth, 200);
  EXPECT_EQ(health.failures(), 0);
  EXPECT_GE(health.count(), 100u);
  if (health.is_quiet()) {
    EXPECT_LT(health.Quantile(0.99), 20);
  }

  // Nobody waits for the long prompt any more; all others come to their end.
  prefill.reset();
  for (StreamCrowd* crowd : {&active, &idle}) {
    for (const CrowdStream& stream : crowd->Finish(std::chrono::seconds(120))) {
      ASSERT_TRUE(stream.done) << stream.events << " events";
      ASSERT_THAT(stream.received, HasSubstr("\"finish_reason\":\"length\""));
    }
  }
  server.ExpectNothingRuns();
}

TEST(ServeLoadTest, ALargePromptIsReadWhileHealthAnswers) {
  constexpr size_t kBytes = 20'000'000;
  std::string content;
  for (int i = 0; content.size() < kBytes; ++i)
    content += fmt::format("Line {} of a report: what is said here is said {} times.\n", i, i % 9);
  content.resize(kBytes);
  const RunningServer server({"--max-body-mib", "64"});
  const std::string body = json{{"messages", {{{"role", "user"}, {"content", content}}}}}.dump();
  HealthWatch health(server.port());
  const auto before = CpuSecondsOfThreads(server.pid());
  const auto begin = steady_clock::now();
  const HttpReply reply = HttpClient(server.port()).Post("/v1/chat/completions", body);
  const double seconds = Milliseconds(steady_clock::now() - begin) / 1e3;
  const double cpu = CpuSeconds(before, CpuSecondsOfThreads(server.pid()), "requests");
  health.Stop();
  const json error = ParseJsonText(reply.body)["error"];
  fmt::print(
      "{}\n20 MB read, rendered and tokenised in {:.2f} s, {:.2f} s of them at work; /health {} "
      "times, p99 {:.2f} ms\n",
      error["message"].get<std::string>(), seconds, cpu, health.count(), health.Quantile(0.99));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_LT(cpu, 5);
  EXPECT_EQ(health.failures(), 0);
  if (health.is_quiet()) {
    EXPECT_LT(seconds, 5);
    EXPECT_LT(health.Quantile(0.99), 20);
  }
}

}  // namespace
}  // namespace longspan::testing
