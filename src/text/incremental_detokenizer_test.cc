#include "text/incremental_detokenizer.h"

#include <random>

#include <gtest/gtest.h>

#include "text/tokenizer_test_support.h"
#include "text/unicode.h"

namespace longspan::text {
namespace {

class IncrementalDetokenizerTest : public ::testing::Test {
 protected:
  std::unique_ptr<const Tokenizer> tokenizer_ =
      Tokenizer::FromJson(SmallTokenizerJson().dump(), "").value();
};

TEST_F(IncrementalDetokenizerTest, HoldsACharacterBackUntilItIsWhole) {
  IncrementalDetokenizer detokenizer(*tokenizer_, false);
  EXPECT_EQ(detokenizer.Append(0xF0), "");
  EXPECT_EQ(detokenizer.Append(0x9F), "");
  EXPECT_EQ(detokenizer.Append(0x98), "");
  EXPECT_EQ(detokenizer.Append(0x80), "\U0001F600");
  EXPECT_EQ(detokenizer.Append(257), "abc");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST_F(IncrementalDetokenizerTest, WhatIsLeftBecomesOneReplacement) {
  IncrementalDetokenizer detokenizer(*tokenizer_, false);
  EXPECT_EQ(detokenizer.Append(0xE4), "");
  EXPECT_EQ(detokenizer.Append(0xB8), "");
  EXPECT_EQ(detokenizer.Finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.Append(0xB8), "\uFFFD") << "begins anew";
}

TEST_F(IncrementalDetokenizerTest, IdsBeyondTheVocabularyAddNothing) {
  IncrementalDetokenizer detokenizer(*tokenizer_, false);
  EXPECT_EQ(detokenizer.Append(-1), "");
  EXPECT_EQ(detokenizer.Append(261), "");
  EXPECT_EQ(detokenizer.Append(258), "<s>");
}

TEST_F(IncrementalDetokenizerTest, EqualsTheWholeDecodeForAnyIds) {
  std::mt19937 random(3);
  // Mostly bytes of characters of several bytes, whole and broken, with special tokens between.
  const std::vector<int32_t> usual = {0xF0, 0x9F, 0x98, 0x80, 0xE4, 0xB8, 0xAD, 0xC3,
                                      0xA9, 0xED, 0xA0, 0xFF, 'x',  257,  258,  260};
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids(random() % 12);
    for (int32_t& id : ids) id = usual[random() % usual.size()];
    for (const bool skip_special : {false, true}) {
      IncrementalDetokenizer detokenizer(*tokenizer_, skip_special);
      std::string text;
      for (const int32_t id : ids) {
        const std::string piece = detokenizer.Append(id);
        ASSERT_TRUE(CheckUtf8(piece).ok());
        text += piece;
      }
      text += detokenizer.Finish();
      ASSERT_EQ(text, tokenizer_->Decode(ids, skip_special).value());
    }
  }
}

}  // namespace
}  // namespace longspan::text
