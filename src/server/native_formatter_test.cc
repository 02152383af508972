// Streams of /generate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/formatter.h"
#include "text/tokenizer.h"

namespace longspan::server {
namespace {

TokenEvent Event(std::string text, int32_t token) {
  return {.sequence = 0,
          .text = std::move(text),
          .token = engine::TokenOutput{
              .token = token, .logprob = -1, .top_logprobs = {{token, -1.0F}, {token + 1, -2.0F}}}};
}

class NativeStreamTest : public ::testing::Test {
 protected:
  NativeStreamTest()
      : tokenizer_(std::move(text::Tokenizer::Load(LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe"))
                       .value()) {
    model_.tokenizer = tokenizer_.get();
    call_.stream = call_.logprobs = true;
    call_.prompt_tokens = {3};
    call_.generation.choices = 1;
    call_.generation.common.sampling.top_logprobs = 2;
  }

  // The events of tokens 5 to 8, of which the second makes no text alone, and of the end.
  std::vector<Json> Events() {
    const auto formatter = MakeNativeFormatter(call_, model_);
    std::string out;
    formatter->OnToken(Event("a", 5), out);
    formatter->OnToken(Event("", 6), out);
    formatter->OnSilence(out);
    formatter->OnToken(Event("bc", 7), out);
    TokenEvent last = Event("d", 8);
    last.finish = Finish{.reason = engine::FinishReason::kLength, .completion_tokens = 4};
    formatter->OnToken(std::move(last), out);
    std::vector<Json> events;
    constexpr std::string_view kData = "data: ";
    for (size_t begin = 0; begin < out.size();) {
      const size_t end = out.find("\n\n", begin);
      events.push_back(
          ParseJson(out.substr(begin + kData.size(), end - begin - kData.size())).value());
      begin = end + 2;
    }
    return events;
  }

  std::unique_ptr<const text::Tokenizer> tokenizer_;
  ServedModel model_;
  Call call_;
};

std::vector<int32_t> IdsOf(const Json& logprobs) {
  std::vector<int32_t> ids;
  for (const Json& entry : logprobs) ids.push_back(entry[1].get<int32_t>());
  return ids;
}

TEST_F(NativeStreamTest, EventsHoldAllSoFar) {
  const std::vector<Json> events = Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2]["text"], "abc");
  EXPECT_EQ(IdsOf(events[2]["meta_info"]["output_token_logprobs"]), (std::vector{5, 6, 7}));
  EXPECT_EQ(events[3]["text"], "abcd");
  EXPECT_EQ(events[3]["output_ids"], Json({5, 6, 7, 8}));
}

// Every token and every character once, with those that came without an event of their own.
TEST_F(NativeStreamTest, IncrementalEventsHoldWhatIsNew) {
  call_.incremental = true;
  std::string text;
  std::vector<int32_t> ids;
  int64_t tokens = 0;
  for (const Json& event : Events()) {
    const Json& meta = event["meta_info"];
    text += event["text"].get<std::string>();
    const auto more = event["output_ids"].get<std::vector<int32_t>>();
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_EQ(IdsOf(meta["output_token_logprobs"]), more);
    EXPECT_EQ(meta["output_top_logprobs"].size(), more.size());
    tokens = meta["completion_tokens"].get<int64_t>();
  }
  EXPECT_EQ(text, "abcd");
  EXPECT_EQ(ids, (std::vector{5, 6, 7, 8}));
  EXPECT_EQ(tokens, 4);
}

}  // namespace
}  // namespace longspan::server
