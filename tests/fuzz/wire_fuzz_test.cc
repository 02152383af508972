// Broken frames of ranks, the leader and nodes: refused, or what their writer could have written.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "runtime/beat.h"
#include "runtime/node_wire.h"
#include "runtime/step_tables.h"
#include "runtime/wire.h"
#include "tests/fuzz/frame_mutator.h"
#include "tests/fuzz/sample_plans.h"

namespace longspan::testing {
namespace {

using runtime::Frame;

constexpr int kFrames = 200000;

// Frames of all kinds, so that one is spliced with another.
std::vector<Bytes> AllKinds() {
  std::vector<Bytes> frames;
  for (const uint64_t number : {1, 2, 3, 9}) {
    frames.push_back(runtime::EncodePlan(SamplePlan(number, 3)));
    frames.push_back(runtime::EncodeResult(SampleResult(number, 3)));
    // Mostly a chunk comes alone, and no row of it needs logits.
    plan::StepPlan chunk = SamplePlan(number, 3);
    chunk.slices.resize(1);
    chunk.logits_rows.clear();
    if (number > 1) chunk.started.clear();
    frames.push_back(runtime::EncodePlan(chunk));
  }
  frames.push_back(runtime::EncodeBeat({{3}, {41}, 1500}));
  frames.push_back(runtime::EncodeTokens({{4}, {5, -1, 6}}));
  frames.push_back(runtime::EncodeLaunch({7, 5, 1, true, {"10.0.0.1:5000", "[::1]:80"}}));
  frames.push_back(runtime::EncodeFailure(base::DataLoss("broken")));
  frames.push_back(runtime::EncodeAllocate(50));
  frames.push_back(runtime::EncodeReady({1, 2, 3, 4, 0}));
  frames.push_back(runtime::EncodeConfigure({.model_dir = "m",
                                             .backend = "cpu",
                                             .cores = {1, 2},
                                             .ranges = {{0, 4}},
                                             .max_rows = 10,
                                             .max_slices = 4,
                                             .max_context = 99}));
  return frames;
}

// Runs `accepts` on broken frames: what it accepts it checks itself, and says so by true. Of a
// fuzzer that breaks everything the rest would not be tested, so some must be accepted.
template <typename Accepts>
void Fuzz(const char* what, uint64_t seed, std::vector<Bytes> corpus, const Accepts& accepts) {
  FrameMutator mutator(seed, std::move(corpus));
  int accepted = 0;
  for (int i = 0; i < kFrames && !::testing::Test::HasFailure(); ++i)
    accepted += accepts(mutator.Next()) ? 1 : 0;
  std::printf("%s: %d of %d broken frames accepted as whole\n", what, accepted, kFrames);
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kFrames / 2);
}

// The rules of plan/step_plan.h and of the ranks, told anew.
void ExpectValid(const plan::StepPlan& plan) {
  for (const plan::SequenceStart& start : plan.started) {
    EXPECT_TRUE(spec::CheckSampling(start.sampling).ok());
    for (const auto& [token, bias] : start.sampling.logit_bias) {
      EXPECT_GE(token, 0);
      EXPECT_TRUE(std::isfinite(bias));
    }
    for (const int32_t token : start.prompt) EXPECT_GE(token, 0);
    for (const int32_t token : start.output) EXPECT_GE(token, 0);
  }
  for (const plan::Slice& slice : plan.slices) {
    EXPECT_GE(slice.begin, 0);
    EXPECT_GT(slice.end(), slice.begin);
    EXPECT_LE(slice.end(), INT32_MAX);
    for (const kv::PageId page : slice.new_pages) EXPECT_GE(page, 0);
    for (const plan::TokenSource& token : slice.tokens) {
      EXPECT_GE(token.literal, -1);
      EXPECT_TRUE(token.is_literal() || token.plan < plan.number);
    }
  }
  for (size_t i = 0; i < plan.logits_rows.size(); ++i) {
    const plan::LogitsRow& row = plan.logits_rows[i];
    ASSERT_LT(row.slice, plan.slices.size());
    EXPECT_GE(row.position, plan.slices[row.slice].begin);
    EXPECT_LT(row.position, plan.slices[row.slice].end());
    EXPECT_GE(row.score_token, -1);
    if (i == 0) continue;
    const plan::LogitsRow& before = plan.logits_rows[i - 1];
    EXPECT_TRUE(before.slice < row.slice ||
                (before.slice == row.slice && before.position < row.position));
  }
}

TEST(WireFuzzTest, Plans) {
  int64_t applied = 0;
  Fuzz("plans", 1, AllKinds(), [&](const Frame& frame) {
    const auto plan = runtime::DecodePlan(frame);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), base::StatusCode::kDataLoss);
      return false;
    }
    ExpectValid(*plan);
    EXPECT_EQ(runtime::EncodePlan(*plan), frame);
    // A rank that has taken part in the run so far can apply it or refuses it.
    runtime::SequencePages pages(kSamplePageSize, kSamplePages);
    for (uint64_t number = 1; number < std::min<uint64_t>(plan->number.value, 10); ++number)
      EXPECT_TRUE(pages.Apply(SamplePlan(number, 3)).ok());
    const auto tables = pages.Apply(*plan);
    if (!tables.ok()) {
      EXPECT_EQ(tables.status().code(), base::StatusCode::kDataLoss);
      return true;
    }
    ++applied;
    EXPECT_EQ(static_cast<int64_t>(tables->positions.size()), plan->rows());
    for (const int64_t slot : tables->slots) {
      EXPECT_GE(slot, 0);
      EXPECT_LT(slot, kSamplePages * kSamplePageSize);
    }
    return true;
  });
  EXPECT_GT(applied, 0);
}

TEST(WireFuzzTest, Results) {
  Fuzz("results", 2, AllKinds(), [](const Frame& frame) {
    const auto result = runtime::DecodeResult(frame);
    if (!result.ok()) {
      EXPECT_EQ(result.status().code(), base::StatusCode::kDataLoss);
      return false;
    }
    EXPECT_GE(result->rank, 0);
    for (const plan::StageSpan& span : result->timing.spans)
      EXPECT_LT(static_cast<int>(span.kind), plan::kSpanKinds);
    for (const plan::RowResult& row : result->rows) EXPECT_GE(row.token, -1);
    for (const plan::HiddenRow& row : result->hidden) EXPECT_GE(row.depth, 0);
    EXPECT_EQ(runtime::EncodeResult(*result), frame);
    return true;
  });
}

TEST(WireFuzzTest, Beats) {
  Fuzz("beats", 3, {runtime::EncodeBeat({{3}, {41}, 1500}), runtime::EncodeBeat({})},
       [](const Frame& frame) {
         const auto beat = runtime::DecodeBeat(frame);
         if (!beat.ok()) {
           EXPECT_EQ(beat.status().code(), base::StatusCode::kDataLoss);
           return false;
         }
         EXPECT_GE(beat->computing_ms, 0);
         EXPECT_EQ(EncodeBeat(*beat), frame);
         return true;
       });
}

TEST(WireFuzzTest, OrdersToNodes) {
  Fuzz("orders", 4,
       {runtime::EncodeLaunch({7, 5, 1, true, {"10.0.0.1:5000", "[::1]:80"}}),
        runtime::EncodeLaunch({1, 3, 2, false, {"a:1", "b:2", "c:3"}}), runtime::EncodeRunOver()},
       [](const Frame& frame) {
         const auto launch = runtime::DecodeLaunch(frame);
         if (!launch.ok()) {
           EXPECT_EQ(launch.status().code(), base::StatusCode::kDataLoss);
           return false;
         }
         EXPECT_FALSE(launch->addresses.empty());
         EXPECT_GE(launch->stages, static_cast<int64_t>(launch->addresses.size()));
         EXPECT_EQ(EncodeLaunch(*launch), frame);
         return true;
       });
}

TEST(WireFuzzTest, LinesOfNodes) {
  const auto bytes = [](const std::string& text) {
    const auto all = std::as_bytes(std::span(text));
    return Bytes(all.begin(), all.end());
  };
  Fuzz("lines", 5,
       {bytes("launch 1 control 3 0"), bytes("launch 22 residual 14 7"),
        bytes("launch 3 tokens 0 1")},
       [](const Bytes& frame) {
         const std::string text(reinterpret_cast<const char*>(frame.data()), frame.size());
         const auto line = runtime::NodeLine::Parse(text);
         if (!line.ok()) {
           EXPECT_EQ(line.status().code(), base::StatusCode::kDataLoss);
           return false;
         }
         EXPECT_EQ(line->ToString(), text);
         return true;
       });
}

// The rest of the kinds: a value or DataLoss, for frames of any kind.
TEST(WireFuzzTest, FramesOfBringUp) {
  Fuzz("frames of bring-up", 6, AllKinds(), [](const Frame& frame) {
    const base::Status failure = runtime::DecodeFailure(frame);
    EXPECT_FALSE(failure.ok());
    int accepted = 0;
    const auto take = [&](const auto& decoded) {
      if (decoded.ok()) return void(++accepted);
      EXPECT_EQ(decoded.status().code(), base::StatusCode::kDataLoss);
    };
    take(runtime::DecodeConfigure(frame));
    take(runtime::DecodeLoading(frame));
    take(runtime::DecodeReady(frame));
    take(runtime::DecodeAllocate(frame));
    take(runtime::DecodeTokens(frame));
    EXPECT_LE(accepted, 1);
    return accepted == 1;
  });
}

// A version is not guessed.
TEST(WireFuzzTest, NoFrameOfAnotherVersionIsAccepted) {
  for (Bytes frame : AllKinds()) {
    const uint8_t version = static_cast<uint8_t>(frame[4]);
    for (int other = 0; other < 256; ++other) {
      if (other == version) continue;
      frame[4] = std::byte(other);
      const auto kind = runtime::KindOf(frame);
      ASSERT_EQ(kind.status().code(), base::StatusCode::kDataLoss);
      EXPECT_NE(kind.status().message().find(std::to_string(other)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace longspan::testing
