// `--trace-out` and `longspan trace`, as a user calls them.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A prompt of 1,000 tokens in chunks of 128, and a few tokens after it.
std::vector<std::string> GenerateFlags(const TemporaryFolder& folder, const std::string& trace,
                                       int loops = 1) {
  std::vector<int32_t> ids(1000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(300 + i % 50);
  return {"generate",
          "--ids-file",
          folder.Write("ids.json", json(ids).dump()),
          "--max-tokens",
          "4",
          "--ignore-eos",
          "--pp-size",
          "2",
          "--virtual-stages",
          std::to_string(loops),
          "--threads",
          "1",
          "--chunked-prefill-size",
          "128",
          "--json",
          "--trace-out",
          trace};
}

json RunTraced(const TemporaryFolder& folder, const std::string& trace, int loops = 1) {
  const Outcome outcome = RunProgram(GenerateFlags(folder, trace, loops));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  EXPECT_TRUE(outcome.left.empty());
  return json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
}

class LoopedTraceTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Loops, LoopedTraceTest, ::testing::Values(1, 2));

TEST_P(LoopedTraceTest, TheFileHasATrackPerRankWithoutOverlaps) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "trace.json";
  const json result = RunTraced(folder, file, GetParam());
  const json events = json::parse(ReadFile(file), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(events.is_array());
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  std::map<int, std::set<std::string>> categories;  // by process
  std::set<std::string> kernels_of_rank_1;
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    const double start = event["ts"];
    tracks[{event["pid"], event["tid"]}].emplace_back(start, start + event["dur"].get<double>());
    categories[event["pid"]].insert(event["cat"]);
    EXPECT_TRUE(event["args"].contains("plan"));
    if (event["pid"] == 2 && event["cat"] == "kernels") kernels_of_rank_1.insert(event["name"]);
  }
  EXPECT_THAT(categories[0], IsSupersetOf({"plan", "submit", "commit"}));
  EXPECT_THAT(categories[1], IsSupersetOf({"kernels", "host", "tables", "send"}));
  EXPECT_THAT(categories[2], IsSupersetOf({"kernels", "host", "tables", "receive"}));
  EXPECT_THAT(kernels_of_rank_1,
              IsSupersetOf({"seq 1 [0, 128)", "seq 1 [128, 256)", "seq 1 [1000, 1001)"}));
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i)
      EXPECT_GE(spans[i].first, spans[i - 1].second - 0.01) << track.first << ' ' << track.second;
  }
  // Also by the program's own reading; every boundary has been passed as often as there are plans,
  // from the last rank back to the first once less per loop.
  const Outcome outcome = RunProgram({"trace", file, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const json summary = json::parse(outcome.output);
  for (const json& boundary : summary["boundaries"]) {
    const int passes = GetParam() - (boundary["to"] == 0 ? 1 : 0);
    EXPECT_EQ(boundary["transfers"], passes * summary["plans"].get<int>());
  }
  EXPECT_EQ(summary["boundaries"].size(), GetParam() > 1 ? 2u : 1u);
}

TEST(TraceTest, SharesAreAllOfTheTimeAndAgreeWithTheRun) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "trace.json";
  const json pipeline = RunTraced(folder, file)["pipeline"];
  const std::string svg = folder.path() / "trace.svg";
  const Outcome outcome = RunProgram({"trace", file, "--json", "--svg", svg});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  const json summary = json::parse(outcome.output);
  EXPECT_TRUE(summary["ended"]);
  // 8 chunks and 3 rows of decoding; the one that was ahead of the end may have been computed.
  EXPECT_GE(summary["plans"], 11);
  EXPECT_LE(summary["plans"], 14);
  ASSERT_EQ(summary["ranks"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const json& rank = summary["ranks"][i];
    double sum = 0;
    for (const char* part : {"busy", "bubble", "transfer", "host"}) {
      EXPECT_GE(rank[part], 0.0);
      sum += rank[part].get<double>();
    }
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_GT(rank["busy"], 0.0);
    // The same time in kernels, but for parts shorter than a microsecond.
    const json& counters = pipeline["counters"]["ranks"][i];
    const double window_s =
        (summary["end_ms"].get<double>() - summary["begin_ms"].get<double>()) / 1000;
    const double busy_s = rank["busy"].get<double>() * window_s;
    EXPECT_NEAR(busy_s, counters["kernels_s"].get<double>(), 0.02 * busy_s + 1e-4);
  }
  ASSERT_EQ(summary["boundaries"].size(), 1u);
  EXPECT_EQ(summary["boundaries"][0]["bytes"], pipeline["counters"]["ranks"][0]["sent_bytes"]);
  EXPECT_GE(summary["plan_latency_ms"]["p99"], summary["plan_latency_ms"]["p50"]);
  EXPECT_THAT(ReadFile(svg),
              ::testing::AllOf(::testing::StartsWith("<svg"), ::testing::EndsWith("</svg>\n"),
                               HasSubstr("rank 1")));

  const Outcome text = RunProgram({"trace", file, "--from-ms", "1"});
  EXPECT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_THAT(text.output, ::testing::AllOf(HasSubstr("busy"), HasSubstr("plan latency")));
}

TEST(TraceTest, AFullDiskDoesNotDisturbTheRun) {
  const TemporaryFolder folder;
  for (const char* path : {"/dev/full", "/none/trace.json"}) {
    const Outcome outcome = RunProgram(GenerateFlags(folder, path));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_TRUE(json::accept(outcome.output));
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
    EXPECT_THAT(outcome.errors,
                HasSubstr(std::string("the trace '") + path + "' cannot be written"));
  }
}

TEST(TraceTest, AKilledRunLeavesAReadableTrace) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "trace.json";
  const std::vector<int32_t> ids(16000, 300);
  RunningProgram program({"generate", "--backend", "reference", "--ids-file",
                          folder.Write("ids.json", json(ids).dump()), "--threads", "1", "--pp-size",
                          "2", "--chunked-prefill-size", "16", "--trace-out", file});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (ReadFile(file).find("\"commit\"") == std::string::npos &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(program.pid(), SIGKILL);
  (void)program.Wait();
  const Outcome outcome = RunProgram({"trace", file, "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("the run was cut off"));
  EXPECT_FALSE(json::parse(outcome.output)["ended"]);
}

TEST(TraceTest, WhatIsNoTraceIsRefusedInOneSentence) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "trace.json";
  RunTraced(folder, file);
  const std::string whole = ReadFile(file);
  for (const std::string& content :
       {std::string(), std::string("{}"), std::string("[\n{\"ph\":\"X\"}\n]\n"),
        whole.substr(0, whole.find('\n', whole.size() / 2) + 10),
        whole.substr(0, whole.size() - 30)}) {
    const Outcome outcome = RunProgram({"trace", folder.Write("broken.json", content)});
    EXPECT_EQ(outcome.exit_code, 1) << content.substr(0, 40);
    EXPECT_EQ(outcome.output, "");
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
    EXPECT_THAT(outcome.errors, HasSubstr("broken.json' is no usable trace: "));
  }
  const Outcome none = RunProgram({"trace", "/none"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_EQ(none.errors, "longspan: there is no file '/none'\n");
  const Outcome unwritable = RunProgram({"trace", file, "--svg", "/none/out.svg"});
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_THAT(unwritable.errors, HasSubstr("/none/out.svg"));
  const Outcome usage = RunProgram({"trace", file, "--from-ms", "5", "--to-ms", "2"});
  EXPECT_EQ(usage.exit_code, 2);
  EXPECT_EQ(RunProgram({"trace"}).exit_code, 2);
}

}  // namespace
}  // namespace longspan::testing
