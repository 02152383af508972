// What `longspan serve` adds to the engine's own times: an engine of this process and a server, by
// turns.
#include <algorithm>
#include <fstream>
#include <memory>
#include <span>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/engine_setup.h"
#include "tests/load/cpu_time.h"
#include "tests/load/stream_crowd.h"
#include "tests/process/running_server.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr int kPromptTokens = 32;

double SecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A model whose tokens take about as long as those of a small real one, with a real tokenizer.
std::string WriteModel(const TemporaryFolder& folder) {
  const std::filesystem::path tiny = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(tiny / name, folder.path() / name);
  std::ifstream file(LONGSPAN_SOURCE_DIR "/bench/models/smollm2-135m/config.json");
  json config = json::parse(file);
  config["vocab_size"] = 1024;
  folder.Write("config.json", config.dump());
  return folder.path().string();
}

// The same prompts for both; none is like another, so that nothing is cached.
std::vector<int32_t> Prompt(int number) {
  std::vector<int32_t> ids;
  for (int i = 0; i < kPromptTokens; ++i) ids.push_back(3 + (i * 7 + number * 131) % 900);
  return ids;
}

struct Times {
  double first_s = 0;  // token
  double all_s = 0;
  double cpu_s =
      0;  // of all threads that do not compute the model: what a busy machine changes least
};

struct Pair {
  Times alone;
  Times served;
};

template <typename Value>
double MedianOf(std::span<const Pair> pairs, const Value& value) {
  std::vector<double> values;
  for (const Pair& pair : pairs) values.push_back(value(pair));
  return Median(std::move(values));
}

// Whether the machine has given the engine alone the same times all along, to 2% and but for a
// tenth at either end: only then does the difference to other times tell of the server.
template <typename Value>
bool IsQuiet(std::span<const Pair> pairs, const Value& value) {
  std::vector<double> values;
  for (const Pair& pair : pairs) values.push_back(value(pair.alone));
  std::sort(values.begin(), values.end());
  const size_t tenth = values.size() / 10;
  return values[values.size() - 1 - tenth] < 1.02 * values[tenth];
}

constexpr const char* kNoise =
    "\n  (not held to these times: the engine's own vary by more than 2%)";

class TimingSink : public engine::OutputSink {
 public:
  bool OnToken(plan::SequenceId /*sequence*/, const engine::TokenOutput& /*token*/) override {
    if (times_.first_s == 0) times_.first_s = SecondsSince(begin_);
    return true;
  }
  void OnFinish(plan::SequenceId /*sequence*/, engine::FinishReason /*reason*/,
                const engine::FinishInfo& /*info*/) override {
    times_.all_s = SecondsSince(begin_);
  }
  const Times& times() const { return times_; }

 private:
  steady_clock::time_point begin_ = steady_clock::now();
  Times times_;
};

class ServeOverheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string model = WriteModel(folder_);
    const apps::EngineFlags flags = {
        .model_path = model, .load_format = "dummy", .backend = "cpu", .disable_radix_cache = true};
    const auto setup = apps::ResolveSetup(flags);
    ASSERT_TRUE(setup.ok()) << setup.status().message();
    auto engine = apps::StartEngine(flags, *setup, apps::StagePlacement::kThreads);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    server_ = std::make_unique<RunningServer>(std::vector<std::string>{
        "--model-path", model, "--load-format", "dummy", "--disable-radix-cache"});
  }

  Times OfEngine(int streams, int tokens) {
    const auto cpu = CpuSecondsOfThreads(getpid());
    TimingSink sink;
    for (int i = 0; i < streams; ++i)
      EXPECT_TRUE(
          engine_
              ->Submit(
                  {.prompt = Prompt(next_ + i), .max_tokens = tokens, .ignore_end_tokens = true},
                  &sink)
              .ok());
    EXPECT_TRUE(engine_->RunUntilIdle().ok());
    Times times = sink.times();
    times.cpu_s = CpuSeconds(cpu, CpuSecondsOfThreads(getpid()), "main");
    return times;
  }

  Times OfServer(int streams, int tokens) {
    std::vector<std::string> requests;
    for (int i = 0; i < streams; ++i)
      requests.push_back(RequestText("POST", "/v1/completions",
                                     json{{"prompt", Prompt(next_ + i)},
                                          {"max_tokens", tokens},
                                          {"temperature", 0},
                                          {"ignore_eos", true},
                                          {"stream", true}}
                                         .dump()));
    Times times;
    const auto cpu = CpuSecondsOfThreads(server_->pid());
    const auto begin = steady_clock::now();
    if (streams == 1) {
      HttpClient client(server_->port());
      client.Send(requests[0]);
      client.ReadUntil("data: ");
      times.first_s = SecondsSince(begin);
      EXPECT_TRUE(client.ReadUntil("[DONE]").ends_with("[DONE]"));
    } else {
      StreamCrowd crowd(server_->port(), std::move(requests));
      crowd.Finish(std::chrono::seconds(60));
      EXPECT_EQ(crowd.done(), streams);
    }
    times.all_s = SecondsSince(begin);
    const auto now = CpuSecondsOfThreads(server_->pid());
    for (const char* thread : {"main", "http", "requests"})
      times.cpu_s += CpuSeconds(cpu, now, thread);
    return times;
  }

  // Of the engine and of the server; each is the first one every other time.
  Pair MeasureOne(int number, int streams, int tokens) {
    Pair pair;
    if (number % 2 == 1) pair.served = OfServer(streams, tokens);
    pair.alone = OfEngine(streams, tokens);
    if (number % 2 == 0) pair.served = OfServer(streams, tokens);
    next_ += streams;
    return pair;
  }

  // The first one warms up.
  std::vector<Pair> Measure(int pairs, int streams, int tokens) {
    std::vector<Pair> measured;
    for (int pair = 0; pair <= pairs; ++pair) measured.push_back(MeasureOne(pair, streams, tokens));
    measured.erase(measured.begin());
    return measured;
  }

  TemporaryFolder folder_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<RunningServer> server_;
  int next_ = 0;  // prompt that nobody had
};

TEST_F(ServeOverheadTest, LittleIsAddedToTheFirstToken) {
  constexpr double kMost = 2e-3;
  const std::vector<Pair> pairs = Measure(40, 1, 1);
  const auto first = [](const Times& times) { return times.first_s; };
  const double added =
      MedianOf(pairs, [](const Pair& pair) { return pair.served.first_s - pair.alone.first_s; });
  const double cpu =
      MedianOf(pairs, [](const Pair& pair) { return pair.served.cpu_s - pair.alone.cpu_s; });
  const bool quiet = IsQuiet(pairs, first);
  fmt::print(
      "first token after {:.2f} ms; the server adds {:.2f} ms, its threads work {:.2f} ms{}\n",
      1e3 * MedianOf(pairs, [&](const Pair& pair) { return first(pair.alone); }), 1e3 * added,
      1e3 * cpu, quiet ? "" : kNoise);
  EXPECT_LT(cpu, kMost);
  if (quiet) {
    EXPECT_LT(added, kMost);
  }
}

TEST_F(ServeOverheadTest, LittleIsTakenFromTheTokenRate) {
  constexpr double kMost = 0.05;
  // What the compute threads make of it depends on how a host shares out its cores, also on a quiet
  // one: where each has a core of its own it is about as much as the work.
  constexpr double kMostTime = 0.25;
  for (const auto& [streams, tokens] : {std::pair(1, 128), std::pair(16, 32)}) {
    const std::vector<Pair> pairs = Measure(3, streams, tokens);
    const auto all = [](const Times& times) { return times.all_s; };
    const double alone = MedianOf(pairs, [&](const Pair& pair) { return all(pair.alone); });
    const double added =
        MedianOf(pairs, [](const Pair& pair) { return pair.served.all_s / pair.alone.all_s - 1; });
    // At worst the compute threads of all cores wait for the one that made room.
    const double work = MedianOf(pairs, [](const Pair& pair) {
      return (pair.served.cpu_s - pair.alone.cpu_s) / pair.alone.all_s;
    });
    const bool quiet = IsQuiet(pairs, all);
    fmt::print(
        "{} streams of {} tokens: {:.1f} tokens/s, through the server {:.1f}% more time; its "
        "threads work {:.1f}% of it, {:.0f} us for a step{}\n",
        streams, tokens, streams * tokens / alone, 100 * added, 100 * work,
        1e6 * work * alone / tokens, quiet ? "" : kNoise);
    EXPECT_LT(work, kMost) << streams << " of " << tokens;
    if (quiet) {
      EXPECT_LT(added, kMostTime) << streams << " of " << tokens;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
