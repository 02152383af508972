// A trace from the engine's steps to the picture.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/trace_events.h"
#include "apps/trace_file.h"
#include "apps/trace_summary.h"
#include "apps/trace_svg.h"
#include "apps/trace_test_support.h"

namespace longspan::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Trace SmallParsed() { return ParseTrace(SmallTrace()).value(); }

std::string ErrorOf(const std::string& text) {
  const auto trace = ParseTrace(text);
  EXPECT_FALSE(trace.ok());
  return trace.status().message();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// Names of elements that are open at the end, or an impossible end tag.
std::vector<std::string> UnclosedTags(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return {"a tag that does not end"};
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find(' '));
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return {"a quote in " + tag};
    if (tag.front() == '/') {
      if (open.empty() || "/" + open.back() != tag) return {tag};
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open;
}

TEST(TraceEventsTest, WritesOneEventALineInTheChromeForm) {
  const std::string text = SmallTrace();
  const auto events = nlohmann::json::parse(text);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<int>(events.size()) + 2);
  EXPECT_THAT(
      text,
      HasSubstr(R"_({"name":"seq 7 [0, 64)","cat":"kernels","ph":"X","pid":1,"tid":0,)_"
                R"_("ts":1000.000,"dur":10000.000,"args":{"plan":1,"work":"seq 7 [0, 64)"}})_"));
  EXPECT_THAT(text,
              HasSubstr(R"_("args":{"plan":2,"work":"seq 3 [99, 100), seq 7 [64, 128)","slices":[)_"
                        R"_({"seq":3,"begin":99,"end":100,"prefill":false},)_"
                        R"_({"seq":7,"begin":64,"end":128,"prefill":true}]}})_"));
  EXPECT_THAT(text, HasSubstr(R"("latency_us":34000.000)"));
}

TEST(TraceEventsTest, ManySlicesAreCounted) {
  const std::vector<engine::ComputedSlice> slices(5, {{4}, 8, 9, false});
  EXPECT_EQ(DescribeWork(slices), "seq 4 [8, 9), seq 4 [8, 9), seq 4 [8, 9) and 2 more");
  EXPECT_EQ(DescribeWork({}), "");
}

TEST(TraceEventsTest, RanksWithAnotherClockAreMoved) {
  EXPECT_EQ(ClockOffset(40, 2), 0);
  EXPECT_EQ(ClockOffset(-900, 1000), -950);
  EXPECT_EQ(ClockOffset(1000, -900), 950);
  constexpr int64_t kAhead = 77'000'000'000;
  TraceEvents events(2);
  std::string text = events.Begin();
  for (engine::StepRecord step : SmallRun()) {
    plan::StageTiming& stage = step.stages[1];
    for (int64_t* time : {&stage.start, &stage.end, &stage.intake.taken, &stage.intake.tables,
                          &stage.intake.posted})
      *time += kAhead;
    for (plan::StageSpan& span : stage.spans) span.start += kAhead, span.end += kAhead;
    for (plan::BoundaryTransfer& receive : stage.receives)
      receive.posted += kAhead, receive.done += kAhead;
    events.Append(step, text);
  }
  const Trace trace = ParseTrace(text).value();
  // Right but for half the difference of the two ways.
  EXPECT_NEAR(trace.ranks[1].compute[0].start, 9000, 200);
  EXPECT_NEAR(trace.ranks[1].receives[0].end, 13000, 200);
}

TEST(TraceEventsTest, TransfersOfOneBoundaryFollowEachOther) {
  auto steps = SmallRun();
  // Sent while the first one is still on the way.
  steps[1].stages[0].sends[0].posted = steps[0].stages[0].sends[0].posted + 1000;
  TraceEvents events(2);
  std::string text = events.Begin();
  for (const auto& step : steps) events.Append(step, text);
  const Trace trace = ParseTrace(text).value();
  ASSERT_EQ(trace.ranks[1].receives.size(), 2u);
  EXPECT_EQ(trace.ranks[1].receives[0].end, 13000);
  EXPECT_EQ(trace.ranks[1].receives[1].start, 13000);
}

TEST(TraceFileTest, ReadsWhatWasWritten) {
  const Trace trace = SmallParsed();
  EXPECT_TRUE(trace.ended);
  ASSERT_EQ(trace.ranks.size(), 2u);
  ASSERT_EQ(trace.plans.size(), 2u);
  EXPECT_EQ(trace.plans[1].number, 2u);
  EXPECT_EQ(trace.plans[1].slices.at(1).begin, 64);
  EXPECT_TRUE(trace.plans[1].slices.at(1).prefill);
  EXPECT_EQ(trace.plans[1].latency, 34000);
  EXPECT_EQ(trace.ranks[0].compute.size(), 4u);
  EXPECT_THAT(trace.ranks[0].tables, ElementsAre(250, 500));
  EXPECT_EQ(trace.ranks[1].receives.at(0).bytes, 4096);
  EXPECT_EQ(trace.ranks[1].compute.at(2).plan, 1u);
}

TEST(TraceFileTest, ARunThatWasCutOffIsReadable) {
  const std::string whole = SmallTrace();
  const std::string cut = whole.substr(0, whole.size() - TraceEvents::kEnd.size());
  const auto trace = ParseTrace(cut);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_FALSE(trace->ended);
  EXPECT_EQ(trace->plans.size(), 2u);
}

TEST(TraceFileTest, SaysWhatIsWrongWithAFile) {
  const std::string whole = SmallTrace();
  EXPECT_EQ(ErrorOf(""), "it was not written by longspan --trace-out");
  EXPECT_EQ(ErrorOf("[]"), "it was not written by longspan --trace-out");
  EXPECT_EQ(ErrorOf(R"({"traceEvents":[]})"), "it was not written by longspan --trace-out");
  EXPECT_EQ(ErrorOf("[\n"), "it is empty");
  EXPECT_THAT(ErrorOf(TraceEvents(2).Begin()), HasSubstr("it holds no plan"));
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 20)), HasSubstr("cut off"));
  EXPECT_THAT(ErrorOf("[\n{\"name\":\"x\",\"ph\":\"X\"}\n]"), HasSubstr("line 2: "));
  EXPECT_THAT(ErrorOf("[\n7\n]"), HasSubstr("line 2: the event lacks"));
  EXPECT_THAT(ErrorOf(whole + "more"), HasSubstr("follows its end"));
  const auto broken = [&](const std::string& from, const std::string& to) {
    return ErrorOf(Replaced(whole, from, to));
  };
  EXPECT_THAT(broken("\"version\":1", "\"version\":2"), HasSubstr("version 2"));
  EXPECT_THAT(broken("\"ranks\":2", "\"ranks\":0"), HasSubstr("ranks is impossible"));
  EXPECT_THAT(broken("\"ranks\":2", "\"ranks\":1"), HasSubstr("process 2"));
  EXPECT_THAT(broken("\"cat\":\"kernels\"", "\"cat\":\"colonels\""), HasSubstr("colonels"));
  EXPECT_THAT(broken("\"cat\":\"submit\"", "\"cat\":\"omit\""), HasSubstr("omit"));
  EXPECT_THAT(broken("\"dur\":10000.000", "\"dur\":-1"), HasSubstr("impossible times"));
  EXPECT_THAT(broken("\"dur\":10000.000", "\"dur\":1e99"), HasSubstr("impossible times"));
  EXPECT_THAT(broken("\"dur\":10000.000", "\"dur\":20000"), HasSubstr("overlap"));
  EXPECT_THAT(broken("\"dur\":10000.000", "\"dur\":\"long\""), HasSubstr("lacks"));
  EXPECT_THAT(broken("\"end\":64", "\"end\":0"), HasSubstr("no tokens"));
  EXPECT_THAT(broken("\"plan\":2", "\"plan\":9"), HasSubstr("plan 2 stands where"));
}

// Whatever the bytes, there is a trace or an error.
TEST(TraceFileTest, BrokenBytesNeverCrash) {
  const std::string whole = SmallTrace();
  for (size_t size = 0; size < whole.size(); size += 7) (void)ParseTrace(whole.substr(0, size));
  uint64_t random = 1;
  for (int round = 0; round < 500; ++round) {
    std::string text = whole;
    for (int flips = 0; flips < 3; ++flips) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      text[(random >> 33) % text.size()] = static_cast<char>(random >> 20);
    }
    const auto trace = ParseTrace(text);
    if (trace.ok()) (void)DrawTrace(*trace, Summarise(*trace, WindowOf(*trace)), 600);
  }
}

TEST(TraceSummaryTest, SharesAreThoseOfTheSmallRun) {
  const Trace trace = SmallParsed();
  const TraceWindow window = WindowOf(trace);
  EXPECT_EQ(window.begin, 1000);
  EXPECT_EQ(window.end, 33000);
  const TraceSummary summary = Summarise(trace, window);
  ASSERT_EQ(summary.ranks.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.ranks[0].busy, 20.0 / 32);
  EXPECT_DOUBLE_EQ(summary.ranks[0].host, 1.0 / 32);
  EXPECT_DOUBLE_EQ(summary.ranks[0].transfer, 0.5 / 32);
  EXPECT_DOUBLE_EQ(summary.ranks[0].bubble, 10.5 / 32);
  EXPECT_DOUBLE_EQ(summary.ranks[1].busy, 20.0 / 32);
  EXPECT_DOUBLE_EQ(summary.ranks[1].bubble, 12.0 / 32);
  EXPECT_DOUBLE_EQ(summary.ranks[1].wait, 4.0 / 32);
  EXPECT_DOUBLE_EQ(summary.all.bubble, 11.25 / 32);
  EXPECT_EQ(summary.plans, 2);
  EXPECT_EQ(summary.latency_p50, 23500);
  EXPECT_EQ(summary.latency_p99, 34000);
  ASSERT_EQ(summary.boundaries.size(), 1u);
  EXPECT_EQ(summary.boundaries[0].from, 0);
  EXPECT_EQ(summary.boundaries[0].to, 1);
  EXPECT_EQ(summary.boundaries[0].bytes, 8192);
  EXPECT_DOUBLE_EQ(summary.boundaries[0].time, 4000);
  EXPECT_DOUBLE_EQ(summary.boundaries[0].hidden_share, 0.5);
  EXPECT_DOUBLE_EQ(summary.boundaries[0].sender_share, 0.25);
}

TEST(TraceSummaryTest, APartOfTheTimeCountsForItself) {
  const Trace trace = SmallParsed();
  const TraceSummary summary = Summarise(trace, WindowOf(trace, 13000, 23000));
  EXPECT_DOUBLE_EQ(summary.ranks[0].busy, 0.9);
  EXPECT_DOUBLE_EQ(summary.ranks[1].busy, 1);
  EXPECT_DOUBLE_EQ(summary.ranks[1].bubble, 0);
  EXPECT_EQ(WindowOf(trace, 90000).length(), 0);
}

TEST(TraceSummaryTest, WritesTheDocumentedJson) {
  const Trace trace = SmallParsed();
  const auto json = ToJson(Summarise(trace, WindowOf(trace)));
  EXPECT_EQ(json["ranks"][1]["rank"], 1);
  EXPECT_EQ(json["plan_latency_ms"]["p99"], 34.0);
  EXPECT_EQ(json["boundaries"][0]["transfers"], 2);
  for (const auto& rank : json["ranks"]) {
    double sum = 0;
    for (const char* part : {"busy", "bubble", "transfer", "host"}) sum += rank[part].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
  }
  EXPECT_THAT(ToText(Summarise(trace, WindowOf(trace))),
              ::testing::AllOf(HasSubstr("62.50"), HasSubstr("p99 34.00 ms"),
                               HasSubstr("rank 0 to rank 1: 2 transfers")));
}

TEST(TraceSvgTest, DrawsBarsLabelsAndAxis) {
  const Trace trace = SmallParsed();
  const std::string svg = DrawTrace(trace, Summarise(trace, WindowOf(trace)), 1200);
  EXPECT_THAT(UnclosedTags(svg), ElementsAre());
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr(">seq 7 [0, 64)</text>"));
  EXPECT_THAT(svg, HasSubstr(">seq 7 [64, 128) +1</text>"));
  EXPECT_THAT(svg, HasSubstr(">5 ms</text>"));
  EXPECT_THAT(svg, HasSubstr(">rank 1</text>"));
  EXPECT_THAT(svg, HasSubstr("plan 1, seq 7 [0, 64): wait, 4.000 ms"));
  const std::string narrow = DrawTrace(trace, Summarise(trace, WindowOf(trace)), 300);
  EXPECT_EQ(narrow.find(">seq 7 [0, 64)</text>"), std::string::npos) << "no room";
}

TEST(TraceSvgTest, ALongRunHasNoMoreBarsThanPixels) {
  TraceEvents events(2);
  std::string text = events.Begin();
  for (int i = 0; i < 1000; ++i) {
    auto steps = SmallRun(5'000'000'000 + i * int64_t{40'000'000});
    for (auto& step : steps) {
      step.plan = {static_cast<uint64_t>(2 * i) + step.plan.value};
      events.Append(step, text);
    }
  }
  const Trace trace = ParseTrace(text).value();
  const std::string svg = DrawTrace(trace, Summarise(trace, WindowOf(trace)), 600);
  EXPECT_THAT(UnclosedTags(svg), ElementsAre());
  EXPECT_LT(svg.size(), 1'500'000u);
}

}  // namespace
}  // namespace longspan::apps
