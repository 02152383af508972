#include "text/byte_level.h"

#include <gtest/gtest.h>

namespace longspan::text {
namespace {

TEST(ByteLevelTest, SpellsAsGpt2Does) {
  EXPECT_EQ(ByteSpelling(' '), "Ġ");
  EXPECT_EQ(ByteSpelling('\n'), "Ċ");
  EXPECT_EQ(ByteSpelling('!'), "!");
  EXPECT_EQ(ByteSpelling(0x00), "Ā");
  EXPECT_EQ(ByteSpelling(0x7F), "ġ");
  EXPECT_EQ(ByteSpelling(0xAD), "Ń");
  EXPECT_EQ(ByteSpelling(0xFF), "ÿ");
}

TEST(ByteLevelTest, EachByteComesBack) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string bytes;
    ASSERT_TRUE(AppendSpelledBytes(ByteSpelling(static_cast<uint8_t>(byte)), bytes));
    EXPECT_EQ(bytes, std::string(1, static_cast<char>(byte)));
  }
}

TEST(ByteLevelTest, CharactersOutsideTheAlphabetAppendNothing) {
  for (const char* spelled : {"a b", "a\u0144", "ab\u4e2d", "a\U0001F600", "\u00AD", "\u0080"}) {
    std::string bytes = "kept";
    EXPECT_FALSE(AppendSpelledBytes(spelled, bytes)) << spelled;
    EXPECT_EQ(bytes, "kept");
  }
}

}  // namespace
}  // namespace longspan::text
