#include "apps/trace_writer.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/trace_file.h"
#include "apps/trace_test_support.h"

namespace longspan::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TraceWriterTest : public ::testing::Test {
 protected:
  TraceWriterTest() {
    path_ = ::testing::TempDir() + "trace_" + std::to_string(getpid()) + "_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  ~TraceWriterTest() override { std::filesystem::remove_all(path_); }

  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // What a writer to `path` says on stderr while it gets the small run.
  static std::string MessagesOf(const std::string& path) {
    ::testing::internal::CaptureStderr();
    {
      TraceWriter writer(path, 2);
      for (const auto& step : SmallRun()) writer.Add(step);
    }
    return ::testing::internal::GetCapturedStderr();
  }

  std::string path_;
};

TEST_F(TraceWriterTest, TheFileHoldsTheSteps) {
  EXPECT_EQ(MessagesOf(path_), "");
  EXPECT_EQ(Text(), SmallTrace());
}

TEST_F(TraceWriterTest, AnOlderFileIsReplaced) {
  std::ofstream(path_) << std::string(100'000, 'x');
  EXPECT_EQ(MessagesOf(path_), "");
  EXPECT_EQ(Text(), SmallTrace());
}

TEST_F(TraceWriterTest, ManyStepsArriveInOrder) {
  {
    TraceWriter writer(path_, 2);
    auto step = SmallRun()[0];
    for (uint64_t i = 1; i <= 5000; ++i) {
      step.plan = {i};
      for (plan::StageTiming& stage : step.stages)
        for (plan::StageSpan& span : stage.spans) span.start += 50'000'000, span.end += 50'000'000;
      auto& receive = step.stages[1].receives[0];
      receive.posted = receive.done;
      receive.done += 50'000'000;
      writer.Add(step);
    }
  }
  const auto trace = ReadTrace(path_);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->plans.size(), 5000u);
  EXPECT_EQ(trace->plans.back().number, 5000u);
}

TEST_F(TraceWriterTest, WhatCannotBeWrittenIsToldOnce) {
  EXPECT_EQ(MessagesOf("/dev/full"),
            "longspan: the trace '/dev/full' cannot be written: No space left on device; the run "
            "goes on without it\n");
  EXPECT_THAT(MessagesOf(path_ + "/none/trace.json"),
              AllOf(HasSubstr("No such file or directory"), HasSubstr("the run goes on")));
  std::filesystem::create_directory(path_);
  EXPECT_THAT(MessagesOf(path_), HasSubstr("Is a directory"));
}

TEST_F(TraceWriterTest, APipeWithoutAReaderHoldsNobodyUp) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(MessagesOf(path_), HasSubstr("No such device or address"));
}

}  // namespace
}  // namespace longspan::apps
