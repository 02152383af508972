#include "text/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer_test_support.h"

namespace longspan::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using Json = nlohmann::json;
using base::StatusCode;

std::unique_ptr<const Tokenizer> Make(const Json& json, const std::string& config = "") {
  auto tokenizer = Tokenizer::FromJson(json.dump(), config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

// The small tokenizer.json with one place changed.
Json With(const std::string& pointer, const Json& value) {
  Json json = SmallTokenizerJson();
  json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(TokenizerTest, EncodesAndDecodes) {
  const auto tokenizer = Make(SmallTokenizerJson());
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_THAT(*tokenizer->Encode("<s>abcab a<tool>"), ElementsAre(258, 257, 256, ' ', 'a', 260));
  const Ids ids = {258, 257, 0xC3, 0xA9, 260, 0xC3};
  EXPECT_EQ(*tokenizer->Decode(ids, false), "<s>abc\u00E9<tool>\uFFFD");
  EXPECT_EQ(*tokenizer->Decode(ids, true), "abc\u00E9<tool>\uFFFD");
  EXPECT_EQ(*tokenizer->Decode({}, false), "");
  EXPECT_EQ(*tokenizer->Encode("", {.add_special = true}), Ids());
}

TEST(TokenizerTest, TellsAboutTokens) {
  const auto tokenizer =
      Make(SmallTokenizerJson(), R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(tokenizer->TokenId("\u0120"), ' ');
  EXPECT_EQ(tokenizer->TokenId(" "), std::nullopt);
  EXPECT_EQ(tokenizer->TokenText(' '), "\u0120");
  EXPECT_EQ(tokenizer->TokenBytes(' '), " ");
  EXPECT_EQ(tokenizer->TokenBytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer->bos_id(), 258);
  EXPECT_EQ(tokenizer->eos_id(), 259);
  EXPECT_TRUE(tokenizer->IsSpecial(258));
  EXPECT_FALSE(tokenizer->IsSpecial(260));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(261));
}

TEST(TokenizerTest, BadTextAndBadIdsAreErrors) {
  const auto tokenizer = Make(SmallTokenizerJson());
  const auto text = tokenizer->Encode("ab\xC3(");
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(text.status().message(), HasSubstr("not UTF-8 at byte 2"));
  for (const int32_t id : {-1, 261}) {
    const auto decoded = tokenizer->Decode(Ids{97, id}, true);
    EXPECT_EQ(decoded.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(decoded.status().message(),
                HasSubstr(fmt::format("no token {}: the vocabulary has 261", id)));
  }
}

TEST(TokenizerTest, TheConfigurationDecidesAboutSpecialTokens) {
  const auto around = [](const std::string& config) {
    const Json post = {
        {"type", "TemplateProcessing"},
        {"single", {{{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "</s>"}}}}}},
        {"special_tokens", {{"</s>", {{"id", "</s>"}, {"ids", {259}}}}}}};
    return *Make(With("/post_processor", post), config)->Encode("a", {.add_special = true});
  };
  EXPECT_THAT(around(""), ElementsAre('a', 259));
  EXPECT_THAT(around(R"({"bos_token": "<s>"})"), ElementsAre('a', 259));
  EXPECT_THAT(around(R"({"bos_token": "<s>", "add_bos_token": true})"), ElementsAre(258, 'a'));
  EXPECT_THAT(around(R"({"bos_token": "<s>", "add_bos_token": false})"), ElementsAre('a'));
  EXPECT_THAT(around(R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
                         "add_bos_token": true, "add_eos_token": true})"),
              ElementsAre(258, 'a', 259));
  EXPECT_THAT(around(R"({"bos_token": null, "add_bos_token": true})"), ElementsAre('a'));
}

TEST(TokenizerTest, NormalizedTokensAreFoundInTheNormalizedText) {
  Json json = With("/normalizer", {{"type", "NFC"}});
  json["added_tokens"][2] = {{"id", 260}, {"content", "<e\u0301>"}, {"normalized", true}};
  const auto tokenizer = Make(json);
  EXPECT_THAT(*tokenizer->Encode("a<\u00E9>"), ElementsAre('a', 260));
  EXPECT_THAT(*tokenizer->Encode("a<e\u0301>"), ElementsAre('a', 260));
  EXPECT_EQ(*tokenizer->Decode(Ids{260}, true), "<e\u0301>");
}

struct BadFile {
  const char* pointer;
  Json value;
  StatusCode code;
  const char* message;
};

TEST(TokenizerTest, FilesThatAreNotSupportedOrBrokenAreErrors) {
  constexpr auto kUnimplemented = StatusCode::kUnimplemented;
  constexpr auto kDataLoss = StatusCode::kDataLoss;
  const BadFile files[] = {
      {"/model/type", "Unigram", kUnimplemented, "\"Unigram\""},
      {"/model/type", "WordPiece", kUnimplemented, "\"WordPiece\""},
      {"/model/byte_fallback", true, kUnimplemented, "byte_fallback"},
      {"/model/dropout", 0.1, kUnimplemented, "dropout"},
      {"/model/end_of_word_suffix", "</w>", kUnimplemented, "end_of_word_suffix"},
      {"/normalizer", {{"type", "NFKC"}}, kUnimplemented, "normalizer \"NFKC\""},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, kUnimplemented, "\"Metaspace\""},
      {"/pre_tokenizer", nullptr, kUnimplemented, "without ByteLevel"},
      {"/pre_tokenizer", {{"type", "Digits"}}, kUnimplemented, "without ByteLevel"},
      {"/pre_tokenizer/add_prefix_space", "no", kDataLoss, "add_prefix_space"},
      {"/decoder", nullptr, kUnimplemented, "ByteLevel"},
      {"/decoder", {{"type", "WordPiece"}}, kUnimplemented, "decoder \"WordPiece\""},
      {"/post_processor", {{"type", "BertProcessing"}}, kUnimplemented, "\"BertProcessing\""},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", Json::array()}},
       kDataLoss,
       "no place for the text"},
      {"/model/merges/0", "a", kDataLoss, "merge 0 must be two tokens"},
      {"/model/merges/1", "a b c", kDataLoss, "merge 1 must be two tokens"},
      {"/model/merges/1", {"ab"}, kDataLoss, "merge 1 must be two tokens"},
      {"/model/merges/1", {"ab", "d"}, kDataLoss, "\"abd\", which is not in the vocabulary"},
      {"/model/merges/1", {"ab", "<s>"}, kDataLoss, "\"<s>\", which is not in the vocabulary"},
      {"/model/unk_token", "?!", kDataLoss, "unk_token"},
      {"/model/vocab/ab", 300, kDataLoss, "not contiguous"},
      {"/model/vocab/ab", 257, kDataLoss, "two tokens have the id 257"},
      {"/model/vocab/ab", -1, kDataLoss, "the token \"ab\""},
      {"/model/vocab/ab", 2147483647, kDataLoss, "the token \"ab\""},
      {"/model/vocab/ab", "256", kDataLoss, "the token \"ab\""},
      {"/model/vocab", Json::array(), kDataLoss, "\"vocab\" must be an object"},
      {"/added_tokens/2/id", 261, kDataLoss, "id 261, but there are 261 tokens"},
      {"/added_tokens/0", {{"id", 259}, {"content", "</s>"}}, kDataLoss, "no token has the id 258"},
      {"/added_tokens/2/id", 259, kDataLoss, "two tokens have the id 259"},
      {"/added_tokens/2/content", "abc", kDataLoss, "\"abc\" has two ids, 257 and 260"},
      {"/added_tokens/1/content", 5, kDataLoss, "added token 1"},
  };
  for (const BadFile& file : files) {
    SCOPED_TRACE(fmt::format("{} = {}", file.pointer, file.value.dump()));
    const auto tokenizer = Tokenizer::FromJson(With(file.pointer, file.value).dump(), "");
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.status().code(), file.code) << tokenizer.status().message();
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(file.message));
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("tokenizer.json: "));
  }
}

// Every truncation, and every member of another type, is refused or read; nothing else happens.
TEST(TokenizerTest, NoFileCrashes) {
  const std::string config = R"({"bos_token": {"content": "<s>"}, "add_bos_token": true})";
  const std::string whole = SmallTokenizerJson().dump();
  for (size_t size = 0; size < whole.size(); size += size < whole.size() - 200 ? 37 : 1) {
    const auto tokenizer = Tokenizer::FromJson(whole.substr(0, size), config);
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kDataLoss) << size;
  }
  for (size_t size = 1; size < config.size(); ++size)
    EXPECT_FALSE(Tokenizer::FromJson(whole, config.substr(0, size)).ok()) << size;
  int refused = 0;
  const Json flat = SmallTokenizerJson().flatten();
  for (const auto& [pointer, value] : flat.items()) {
    for (std::string place = pointer; !place.empty(); place.erase(place.rfind('/'))) {
      if (place.starts_with("/model/vocab/") && place.size() > 15) continue;
      for (const Json& other : {Json(), Json(-7), Json(1.5), Json("x"), Json::array({Json()}),
                                Json::object({{"type", Json()}})})
        refused += Tokenizer::FromJson(With(place, other).dump(), config).ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(TokenizerTest, LoadsFolders) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "longspan_tokenizer_test";
  std::filesystem::create_directories(folder);
  const auto missing = Tokenizer::Load(folder / "nowhere");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("nowhere/tokenizer.json"));
  std::ofstream(folder / "tokenizer.json") << SmallTokenizerJson();
  EXPECT_TRUE(Tokenizer::Load(folder).ok());
  std::ofstream(folder / "tokenizer_config.json") << "{\"add_bos_token\": 1}";
  EXPECT_THAT(
      Tokenizer::Load(folder).status().message(),
      HasSubstr("longspan_tokenizer_test: tokenizer_config.json: \"add_bos_token\" must be"));
  std::filesystem::remove_all(folder);
}

TEST(TokenizerTest, ThreadsShareATokenizer) {
  const auto tokenizer = Make(With("/normalizer", {{"type", "NFC"}}));
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("abc abab{} cafe\u0301 <tool>\n", i);
  const Ids expected = *tokenizer->Encode(text);
  std::vector<Ids> ids(4);
  std::vector<std::thread> threads;
  for (Ids& own : ids)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) own = *tokenizer->Encode(text);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& own : ids) EXPECT_EQ(own, expected);
}

}  // namespace
}  // namespace longspan::text
