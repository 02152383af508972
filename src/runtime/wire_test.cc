#include "runtime/wire.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace longspan::runtime {
namespace {

plan::StepPlan SomePlan() {
  plan::StepPlan plan{.number = {12}, .epoch = {3}, .ends_group = false};
  plan.released = {{1}, {2}};
  plan.started = {{.sequence = {5},
                   .sampling = {.temperature = 0.7,
                                .top_k = 5,
                                .seed = 99,
                                .repetition_penalty = 1.1,
                                .logit_bias = {{7, -2.5F}, {11, 100.0F}}},
                   .prompt = {4, 5, 6},
                   .output = {7}}};
  plan.slices = {{.sequence = {5},
                  .begin = 128,
                  .tokens = {plan::TokenSource::Literal(4), plan::TokenSource::Literal(0)},
                  .new_pages = {0, 8}},
                 {.sequence = {3},
                  .begin = 7,
                  .tokens = {plan::TokenSource::Sampled({11}, 2)},
                  .new_pages = {}}};
  plan.logits_rows = {{.slice = 0, .position = 129, .score_token = 6, .return_logits = true},
                      {.slice = 1, .position = 7, .sample = true, .return_hidden = true}};
  return plan;
}

plan::StepResult SomeResult() {
  plan::StepResult result{.plan = {12}, .epoch = {3}, .rank = 1};
  result.timing = {.start = 10, .end = 30, .kernels = 15, .cpu = 14, .wait = 4, .transfer = 1};
  result.timing.intake = {.taken = 5, .tables = 6, .posted = 7};
  result.timing.spans = {{plan::SpanKind::kIdle, 8, 10}, {plan::SpanKind::kKernels, 10, 25}};
  result.timing.sends = {{.posted = 26, .bytes = 4096}};
  result.timing.receives = {{.posted = 7, .done = 9, .bytes = 2048}};
  result.timing.exchanged = {.tensor = 11, .context = 12, .expert = 13};
  result.rows = {
      {.slot = 1, .token = 77, .logprob = -0.5f, .top_logprobs = {{77, -0.5f}}, .logits = {1, 2}}};
  result.hidden = {{.slot = 1, .depth = 2, .values = {0.5f}}};
  result.status = base::ResourceExhausted("no pages");
  return result;
}

TEST(WireTest, PlansComeBackAsTheyWere) {
  const auto plan = SomePlan();
  EXPECT_EQ(DecodePlan(EncodePlan(plan)).value(), plan);
}

TEST(WireTest, ResultsComeBackAsTheyWere) {
  const auto result = DecodeResult(EncodeResult(SomeResult())).value();
  EXPECT_EQ(result.rank, 1);
  EXPECT_EQ(result.timing.kernels, 15);
  EXPECT_EQ(result.timing.intake, SomeResult().timing.intake);
  EXPECT_EQ(result.timing.spans, SomeResult().timing.spans);
  EXPECT_EQ(result.timing.sends, SomeResult().timing.sends);
  EXPECT_EQ(result.timing.receives, SomeResult().timing.receives);
  EXPECT_EQ(result.timing.exchanged, SomeResult().timing.exchanged);
  EXPECT_EQ(result.rows.at(0).token, 77);
  EXPECT_EQ(result.rows.at(0).logits, (std::vector<float>{1, 2}));
  EXPECT_EQ(result.hidden.at(0).depth, 2);
  EXPECT_EQ(result.status.message(), "no pages");
}

TEST(WireTest, ConfigurationsComeBackAsTheyWere) {
  const RankConfig config{.model_dir = "m",
                          .backend = "cpu",
                          .threads = 3,
                          .cores = {1, 2},
                          .synthetic_kv = true,
                          .mesh = {.pp = 2, .cp = 2, .tp = 2},
                          .rank = 3,
                          .token_split = plan::TokenSplit::kZigzag,
                          .kv_placement = plan::KvPlacement::kSharded,
                          .ranges = {{2, 4}},
                          .max_rows = 10,
                          .max_slices = 4,
                          .max_context = 99};
  const auto back = DecodeConfigure(EncodeConfigure(config)).value();
  EXPECT_EQ(back.model_dir, "m");
  EXPECT_EQ(back.cores, config.cores);
  EXPECT_EQ(back.ranges, config.ranges);
  EXPECT_EQ(back.max_context, 99);
  EXPECT_EQ(back.context_share(), config.context_share());
  EXPECT_EQ(back.kv_placement, plan::KvPlacement::kSharded);
  EXPECT_TRUE(back.synthetic_kv);
  EXPECT_FALSE(back.deterministic);
}

TEST(WireTest, AFrameOfAnotherVersionOrKindIsRefused) {
  auto frame = EncodePlan(SomePlan());
  EXPECT_FALSE(DecodeResult(frame).ok());
  frame[4] = std::byte{77};
  EXPECT_NE(DecodePlan(frame).status().message().find("version 77"), std::string::npos);
}

TEST(WireTest, ARowOutsideItsSliceIsRefused) {
  auto plan = SomePlan();
  plan.logits_rows[0].position = 130;
  EXPECT_EQ(DecodePlan(EncodePlan(plan)).status().code(), base::StatusCode::kDataLoss);
}

TEST(WireTest, ABiasThatNoRequestMayHaveIsRefused) {
  for (const auto& [token, bias] :
       {std::pair(-1, 1.0F), std::pair(7, 1001.0F), std::pair(7, NAN)}) {
    auto plan = SomePlan();
    plan.started[0].sampling.logit_bias = {{token, bias}};
    const auto status = DecodePlan(EncodePlan(plan)).status();
    EXPECT_EQ(status.code(), base::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("logit bias"), std::string::npos) << status.message();
  }
}

// Whatever the bytes, a decoder gives a value or DataLoss.
TEST(WireTest, BrokenBytesNeverCrash) {
  std::mt19937 random(1);
  for (const Frame& whole : {EncodePlan(SomePlan()), EncodeResult(SomeResult()), EncodeReady({})}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      const auto part = std::span(whole).first(size);
      EXPECT_FALSE(DecodePlan(part).ok());
      EXPECT_FALSE(DecodeResult(part).ok());
      EXPECT_FALSE(DecodeReady(part).ok());
    }
    for (int round = 0; round < 5000; ++round) {
      Frame frame = whole;
      for (int flips = 0; flips < 3; ++flips)
        frame[random() % frame.size()] = std::byte(random() % 256);
      (void)DecodePlan(frame);
      (void)DecodeResult(frame);
      (void)DecodeConfigure(frame);
    }
  }
}

}  // namespace
}  // namespace longspan::runtime
