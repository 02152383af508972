// Text that `longspan serve` streams: whole characters, exact ends, counts that are the
// tokenizer's.
#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/running_server.h"

namespace longspan::testing {
namespace {

using nlohmann::json;

// One for all tests.
class ServeTextTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<RunningServer>(std::vector<std::string>{"--dtype", "f32"});
  }
  static void TearDownTestSuite() { server_.reset(); }

  // The pieces of a stream of completions.
  static std::vector<std::string> Pieces(const json& request) {
    std::vector<std::string> pieces;
    for (const json& event : server_->Stream("/v1/completions", request))
      pieces.push_back(event["choices"][0]["text"]);
    return pieces;
  }
  static std::string Joined(const std::vector<std::string>& pieces) {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    return text;
  }

  static std::unique_ptr<RunningServer> server_;
};
std::unique_ptr<RunningServer> ServeTextTest::server_;

// Hot enough that the model writes bytes rather than words.
TEST_F(ServeTextTest, CharactersOfSeveralTokensComeWhole) {
  int characters = 0;
  int splits = 0;
  for (int seed = 0; seed < 4; ++seed) {
    const std::string prompt = "Größe: 中文 😀 e\u0301";
    const json native = server_->PostJson("/generate", {{"text", prompt},
                                                        {"sampling_params",
                                                         {{"max_new_tokens", 200},
                                                          {"temperature", 8},
                                                          {"sampling_seed", seed},
                                                          {"ignore_eos", true},
                                                          {"skip_special_tokens", false}}}});
    const json ids = native["output_ids"];
    EXPECT_EQ(native["meta_info"]["completion_tokens"], ids.size());
    EXPECT_EQ(native["meta_info"]["prompt_tokens"],
              server_->PostJson("/tokenize", {{"prompt", prompt}})["count"]);
    const std::string text = native["text"];
    EXPECT_EQ(
        server_->PostJson("/detokenize", {{"tokens", ids}, {"skip_special_tokens", false}})["text"],
        text);
    // json refuses to hold what is no UTF-8, so that each piece is whole characters.
    const auto pieces = Pieces({{"prompt", prompt},
                                {"max_tokens", 200},
                                {"temperature", 8},
                                {"seed", seed},
                                {"ignore_eos", true},
                                {"skip_special_tokens", false}});
    EXPECT_EQ(Joined(pieces), text);
    for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xC0) == 0xC0 ? 1 : 0;
    splits += static_cast<int>(ids.size()) - static_cast<int>(pieces.size());
  }
  // It has been tried: characters beyond ASCII, and tokens that had to wait for others.
  EXPECT_GT(characters, 50);
  EXPECT_GT(splits, 10);
}

TEST_F(ServeTextTest, StopStringsEndTheTextWhereverTokensDo) {
  const json golden = GoldenCase("needle300");
  const json request = {{"prompt", golden["ids"]}, {"max_tokens", 32}, {"temperature", 0}};
  const std::string text = golden["greedy_text"];
  for (size_t begin = 1; begin + 1 < text.size(); begin += 6) {
    for (const size_t length : {size_t{2}, size_t{7}}) {
      const std::string stop = text.substr(begin, length);
      const size_t end = text.find(stop);
      json stopped = request;
      // The other one is never there, but begins alike.
      stopped["stop"] = json::array({stop + "\x01", stop});
      EXPECT_EQ(Joined(Pieces(stopped)), text.substr(0, end)) << stop;
      const json reply = server_->PostJson("/v1/completions", stopped);
      EXPECT_EQ(reply["choices"][0]["text"], text.substr(0, end)) << stop;
      EXPECT_EQ(reply["choices"][0]["matched_stop"], stop);
      stopped["include_stop_str_in_output"] = true;
      EXPECT_EQ(Joined(Pieces(stopped)), text.substr(0, end + stop.size())) << stop;
    }
  }
}

}  // namespace
}  // namespace longspan::testing
