// The tokenizer against Hugging Face tokenizers: files made by tests/tools/make_tokenizer_golden.py
// and the golden files of the released models.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <lzma.h>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "text/incremental_detokenizer.h"
#include "text/tokenizer.h"

namespace longspan::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

const std::filesystem::path kSource(LONGSPAN_SOURCE_DIR);
const std::filesystem::path kTokenizers = kSource / "tests/data/tokenizers";
const std::filesystem::path kGolden = kSource / "tests/data/golden";

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot open " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The content of a file compressed with xz.
std::string ReadXz(const std::filesystem::path& path) {
  const std::string packed = Read(path);
  std::string content;
  lzma_stream stream = LZMA_STREAM_INIT;
  EXPECT_EQ(lzma_stream_decoder(&stream, UINT64_MAX, 0), LZMA_OK);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  std::vector<uint8_t> block(1 << 20);
  lzma_ret state = LZMA_OK;
  while (state == LZMA_OK) {
    stream.next_out = block.data();
    stream.avail_out = block.size();
    state = lzma_code(&stream, LZMA_FINISH);
    content.append(block.begin(), block.end() - static_cast<ptrdiff_t>(stream.avail_out));
  }
  EXPECT_EQ(state, LZMA_STREAM_END) << path;
  lzma_end(&stream);
  return content;
}

std::unique_ptr<const Tokenizer> Make(const std::string& tokenizer_json) {
  auto tokenizer = Tokenizer::FromJson(tokenizer_json, "");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::string Incremental(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  IncrementalDetokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Append(id);
  return text + detokenizer.Finish();
}

void ExpectDecoded(const Tokenizer& tokenizer, const Ids& ids, bool skip_special,
                   const std::string& expected) {
  const auto decoded = tokenizer.Decode(ids, skip_special);
  ASSERT_TRUE(decoded.ok()) << decoded.status().message();
  EXPECT_EQ(*decoded, expected);
  EXPECT_EQ(Incremental(tokenizer, ids, skip_special), expected);
}

// [text, ids, ids with special tokens, decoded, decoded without special tokens]
void ExpectCase(const Tokenizer& tokenizer, const Json& expected) {
  const auto text = expected.at(0).get<std::string>();
  SCOPED_TRACE(expected.at(0).dump());
  const auto ids = tokenizer.Encode(text);
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  EXPECT_EQ(*ids, expected.at(1).get<Ids>());
  EXPECT_EQ(*tokenizer.Encode(text, {.add_special = true}), expected.at(2).get<Ids>());
  ExpectDecoded(tokenizer, *ids, false, expected.at(3));
  ExpectDecoded(tokenizer, *ids, true, expected.at(4));
}

TEST(TokenizerGoldenTest, EachFeatureAlone) {
  const Json variants = Json::parse(ReadXz(kTokenizers / "synthetic.json.xz"));
  ASSERT_GE(variants.size(), 20u);
  for (const Json& variant : variants) {
    SCOPED_TRACE(variant.at("name"));
    const auto tokenizer = Make(variant.at("tokenizer").dump());
    ASSERT_NE(tokenizer, nullptr);
    for (const Json& expected : variant.at("cases")) ExpectCase(*tokenizer, expected);
  }
}

// A released tokenizer: its golden file, and random texts of many scripts.
void ExpectModel(const std::string& name) {
  const auto tokenizer = Make(ReadXz(kTokenizers / (name + ".json.xz")));
  ASSERT_NE(tokenizer, nullptr);
  const Json golden = Json::parse(Read(kGolden / ("tokenizer-" + name + ".json")));
  ASSERT_GE(golden.at("encode").size(), 30u);
  for (const Json& expected : golden.at("encode")) {
    const auto text = expected.at("text").get<std::string>();
    SCOPED_TRACE(text);
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, expected.at("ids").get<Ids>());
    ExpectDecoded(*tokenizer, *ids, false, expected.at("decoded"));
  }
  const Json random = Json::parse(ReadXz(kTokenizers / ("random-" + name + ".json.xz")));
  ASSERT_GE(random.at("cases").size(), 1000u);
  for (const Json& expected : random.at("cases")) ExpectCase(*tokenizer, expected);
}

TEST(TokenizerGoldenTest, Qwen3) { ExpectModel("qwen3"); }

TEST(TokenizerGoldenTest, DeepSeekV3) { ExpectModel("deepseek_v3"); }

TEST(TokenizerGoldenTest, TheGreedyTextOfTheEmbeddedModel) {
  const auto tokenizer = Tokenizer::Load(kSource / "models/tiny-qwen3-moe");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->eos_id(), (*tokenizer)->TokenId("<|im_end|>"));
  EXPECT_EQ((*tokenizer)->bos_id(), std::nullopt);
  const Json cases = Json::parse(Read(kGolden / "tiny-qwen3-moe.json"));
  ASSERT_FALSE(cases.empty());
  for (const Json& expected : cases) {
    SCOPED_TRACE(expected.at("name"));
    ExpectDecoded(**tokenizer, expected.at("greedy").get<Ids>(), true, expected.at("greedy_text"));
    const Ids prompt = expected.at("ids");
    const auto text = (*tokenizer)->Decode(prompt, false);
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(*(*tokenizer)->Encode(*text), prompt);
  }
}

}  // namespace
}  // namespace longspan::text
