// Two hosts with a cable of 1 Gbit/s and 5 ms between them: the tokens of one host, and transfers
// that cost no time, since the next chunk is computed meanwhile.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"
#include "tests/process/two_hosts.h"

namespace longspan::testing {
namespace {

using nlohmann::json;

constexpr int kPrompt = 8192;
constexpr int kChunk = 512;

// A prompt in 16 chunks and some tokens after it.
std::vector<std::string> Generate(const TemporaryFolder& folder) {
  std::vector<int32_t> ids(kPrompt);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(300 + i * i % 97);
  return {"generate",
          "--ids-file",
          folder.Write("ids.json", json(ids).dump()),
          "--max-tokens",
          "16",
          "--ignore-eos",
          "--pp-size",
          "2",
          "--threads",
          "1",
          "--chunked-prefill-size",
          std::to_string(kChunk),
          "--json"};
}

json Parse(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.left.empty());
  return json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
}

struct Span {
  double begin = 0;  // microseconds
  double end = 0;
  double length() const { return end - begin; }
  double Overlap(const Span& other) const {
    return std::max(0.0, std::min(end, other.end) - std::max(begin, other.begin));
  }
};

// The spans of a category of rank 0, by plan.
std::map<int64_t, Span> SpansOfRank0(const json& events, const std::string& category) {
  std::map<int64_t, Span> spans;
  for (const json& event : events) {
    if (event["ph"] != "X" || event["pid"] != 1 || event["cat"] != category) continue;
    const double begin = event["ts"];
    const Span span = {begin, begin + event["dur"].get<double>()};
    const auto [place, added] = spans.emplace(event["args"]["plan"].get<int64_t>(), span);
    if (!added) place->second.end = std::max(place->second.end, span.end);
  }
  return spans;
}

TEST(TwoHostsTest, GiveTheTokensOfOneAndHideTheTransfer) {
  const TwoHosts hosts;
  if (!hosts.missing().empty()) GTEST_SKIP() << "two hosts need root: " << hosts.missing();
  const TemporaryFolder folder;
  const auto flags = Generate(folder);
  const json alone = Parse(RunProgram(flags, {.timeout = std::chrono::seconds(150)}));
  const std::string trace = folder.path() / "trace.json";
  std::vector<std::unique_ptr<RunningProgram>> programs;
  for (const int host : {1, 0}) {
    auto words = hosts.On(host, LONGSPAN_PROGRAM);
    RunOptions options = {.timeout = std::chrono::seconds(150), .program = words[0]};
    if (!hosts.delayed()) options.environment["LONGSPAN_LINE_DELAY_MS"] = "5";
    words.erase(words.begin());
    words.insert(words.end(), flags.begin(), flags.end());
    for (const std::string& word :
         {std::string("--nnodes"), std::string("2"), std::string("--node-rank"),
          std::to_string(host), std::string("--dist-init-addr"),
          std::string(TwoHosts::Address(0)) + ":5000"})
      words.push_back(word);
    if (host == 0) words.insert(words.end(), {"--trace-out", trace});
    programs.push_back(std::make_unique<RunningProgram>(words, options));
  }
  EXPECT_EQ(programs[0]->Wait().exit_code, 0);
  const json together = Parse(programs[1]->Wait());
  ASSERT_FALSE(alone.is_discarded() || together.is_discarded());
  ASSERT_EQ(alone["outputs"][0]["ids"].size(), 16u);
  EXPECT_EQ(together["outputs"][0]["ids"], alone["outputs"][0]["ids"]);

  const json events = json::parse(std::ifstream(trace), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(events.is_array());
  const auto kernels = SpansOfRank0(events, "kernels");
  const auto sends = SpansOfRank0(events, "send");
  std::vector<double> hidden;
  std::vector<double> times;
  // Of the chunks that another one follows.
  for (int64_t plan = 1; plan < kPrompt / kChunk; ++plan) {
    ASSERT_TRUE(sends.contains(plan) && kernels.contains(plan + 1));
    const Span& send = sends.at(plan);
    times.push_back(send.length() / 1000);
    hidden.push_back(send.Overlap(kernels.at(plan + 1)) / send.length());
  }
  std::sort(hidden.begin(), hidden.end());
  std::sort(times.begin(), times.end());
  const double median_hidden = hidden[hidden.size() / 2];
  const double median_ms = times[times.size() / 2];
  std::printf("%s; a transfer takes %.1f ms, of which %.0f%% pass while the next chunk computes\n",
              hosts.delayed() ? "5 ms by the cable" : "5 ms by the program", median_ms,
              100 * median_hidden);
  EXPECT_GE(median_ms, 5);
  EXPECT_GE(median_hidden, 0.8);
}

}  // namespace
}  // namespace longspan::testing
