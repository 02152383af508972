#include "checkpoint/safetensors_header.h"

#include <random>

#include "checkpoint/test_files.h"

namespace longspan::checkpoint {
namespace {

using base::StatusCode;

base::Result<TensorIndex> Parse(const std::string& bytes) {
  return ParseSafetensorsHeader(std::as_bytes(std::span(bytes)), "f.safetensors");
}

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
    R"("b":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})";

TEST(SafetensorsHeaderTest, ReadsShapesTypesAndPositions) {
  const auto index = Parse(SafetensorsBytes(kTwoTensors, 16));
  ASSERT_TRUE(index.ok()) << index.status().message();
  ASSERT_EQ(index->size(), 2u);
  const auto begin = static_cast<int64_t>(8 + kTwoTensors.size());
  const TensorEntry& a = index->at("a");
  EXPECT_EQ(a.dtype, "BF16");
  EXPECT_THAT(a.shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(a.begin, begin);
  EXPECT_EQ(a.end, begin + 12);
  EXPECT_TRUE(index->at("b").shape.empty());
}

TEST(SafetensorsHeaderTest, AcceptsNoTensorsAndEmptyTensors) {
  EXPECT_TRUE(Parse(SafetensorsBytes("{}      ", 0)).ok());
  const auto index =
      Parse(SafetensorsBytes(R"({"b":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                             R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                             4));
  EXPECT_TRUE(index.ok()) << index.status().message();
}

TEST(SafetensorsHeaderTest, KeepsTypesThatNobodyReads) {
  const auto index =
      Parse(SafetensorsBytes(R"({"a":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[0,2]},)"
                             R"("b":{"dtype":"F4","shape":[2,2,1,1,1],"data_offsets":[2,4]}})",
                             4));
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(index->at("a").dtype, "F8_E5M2");
  EXPECT_EQ(DTypeFromSafetensors("F8_E5M2"), std::nullopt);
  EXPECT_EQ(index->at("b").shape.size(), 5u);
}

TEST(SafetensorsHeaderTest, NamesElementTypesBothWays) {
  using tensor::DType;
  for (const DType type : {DType::kF32, DType::kBf16, DType::kF16, DType::kI32, DType::kI64,
                           DType::kU8, DType::kF8E4M3})
    EXPECT_EQ(DTypeFromSafetensors(SafetensorsName(type)), type);
}

TEST(SafetensorsHeaderTest, EveryTruncationIsAnError) {
  const std::string whole = SafetensorsBytes(kTwoTensors, 16);
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto index = Parse(whole.substr(0, size));
    ASSERT_FALSE(index.ok()) << size;
    ExpectSentence(index.status(), StatusCode::kDataLoss, "f.safetensors");
  }
}

struct BrokenHeader {
  std::string_view header;
  size_t data_bytes;
  std::string_view sentence;
};

TEST(SafetensorsHeaderTest, BrokenHeadersAreNamed) {
  const BrokenHeader cases[] = {
      {"", 0, "the header of f.safetensors is empty"},
      {"[1]", 0, "is not a JSON object but a list"},
      {"7", 0, "is not a JSON object but 7"},
      {R"({"a":)", 0, "is not valid JSON"},
      {"{}x", 0, "is not valid JSON"},
      {"{\"\xff\":1}", 0, "is not valid UTF-8"},
      {R"({"a":7})", 0, "tensor 'a' is described by 7 where an object is needed"},
      {R"({"a":{}})", 0, "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":3}})", 0, "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":"F32"}})", 0, "tensor 'a' has no shape"},
      {R"({"a":{"dtype":"F32","shape":4}})", 0, "tensor 'a' has a shape that is no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[-1]}})", 0, "a shape that is no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[1.5]}})", 0, "a shape that is no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615]}})", 0, "no list of sizes"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a' has no data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "no pair of positions"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "no pair of positions"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "no pair of positions"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
       "tensor 'a' ends at byte 0, before its begin at 4"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
       "tensor 'a' ends at byte 8 of the data, but the file has only 4: it is truncated"},
      {R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,4]}})", 4,
       "tensor 'a' has 4 bytes, but its shape [1, 2] of F32 needs 8"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
       "the shape [4294967296, 4294967296], which is too large"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
       "which is too large"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       7, "tensors 'a' and 'b' overlap"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4, "tensors 'a' and 'b' overlap"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})",
       10, "2 bytes before tensor 'b' belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5,
       "1 bytes before tensor 'a' belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 9,
       "the last 5 bytes belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "has the key 'a' twice"},
      {R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
       "has the key 'dtype' twice"},
      {R"({"__metadata__":3})", 0, "'__metadata__' must be an object, not 3"},
      {R"({"__metadata__":{"k":3}})", 0, "'__metadata__' must hold strings, but 'k' is 3"},
      {R"({"line\nbreak":7})", 0, "tensor 'line?break'"},
  };
  for (const BrokenHeader& broken : cases) {
    SCOPED_TRACE(broken.header);
    const auto index = Parse(SafetensorsBytes(broken.header, broken.data_bytes));
    ASSERT_FALSE(index.ok());
    ExpectSentence(index.status(), StatusCode::kDataLoss, broken.sentence);
  }
}

TEST(SafetensorsHeaderTest, RefusesDeepNesting) {
  std::string deep = R"({"a":)";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "}";
  ExpectSentence(Parse(SafetensorsBytes(deep, 0)).status(), StatusCode::kDataLoss,
                 "is nested deeper than");
}

TEST(SafetensorsHeaderTest, RefusesAHugeHeaderLength) {
  for (const uint64_t length :
       {uint64_t{100'000'001}, uint64_t{1} << 62, ~uint64_t{0}, ~uint64_t{7}}) {
    std::string bytes(64, ' ');
    std::memcpy(bytes.data(), &length, sizeof(length));
    ExpectSentence(Parse(bytes).status(), StatusCode::kDataLoss, "is not a safetensors file");
  }
}

TEST(SafetensorsHeaderTest, CutsLongNamesBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 400; ++i) name += "\u00e9";
  const auto index = Parse(SafetensorsBytes("{\"" + name + "\":1}", 0));
  EXPECT_LT(index.status().message().size(), 300u);
  EXPECT_THAT(index.status().message(), testing::HasSubstr("\u00e9...' is described"));
}

// Whatever is done to a file, either it is refused with a sentence or its index is sound.
TEST(SafetensorsHeaderTest, SurvivesMutations) {
  const std::string whole = SafetensorsBytes(kTwoTensors, 16);
  std::mt19937 random(7);
  const auto below = [&random](size_t bound) { return random() % bound; };
  int refused = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = whole;
    for (size_t flips = 1 + below(3); flips > 0; --flips) {
      const size_t at = below(bytes.size());
      // Digits and punctuation keep the JSON valid more often than any byte does.
      bytes[at] = below(2) == 0 ? static_cast<char>(below(256)) : "0123456789,:[]{}\""[below(17)];
    }
    if (below(8) == 0) bytes.resize(below(bytes.size()));
    // The exact size, so that a sanitizer sees each byte read beyond the end.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    const auto index = ParseSafetensorsHeader(std::as_bytes(std::span(exact)), "f");
    if (!index.ok()) {
      ++refused;
      ASSERT_FALSE(index.status().message().empty());
      continue;
    }
    for (const auto& [name, entry] : *index) {
      ASSERT_GE(entry.begin, 8);
      ASSERT_LE(entry.begin, entry.end);
      ASSERT_LE(entry.end, static_cast<int64_t>(exact.size()));
    }
  }
  EXPECT_GT(refused, kRounds / 4);
  EXPECT_LT(refused, kRounds);
}

}  // namespace
}  // namespace longspan::checkpoint
