#include "text/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::text {
namespace {

using ::testing::HasSubstr;

std::string Characters(std::string_view bytes, size_t expected_use) {
  std::string text;
  EXPECT_EQ(AppendCharacters(bytes, text), expected_use);
  return text;
}

TEST(UnicodeTest, NamesTheFirstByteThatIsNotUtf8) {
  EXPECT_TRUE(CheckUtf8("").ok());
  EXPECT_TRUE(CheckUtf8("a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80").ok());
  const std::pair<std::string, int> broken[] = {{"ab\xFF", 2},       {"\x80", 0},
                                                {"a\xC3", 1},        {"a\xC0\xAF", 1},
                                                {"\xED\xA0\x80", 0}, {"\xF4\x90\x80\x80", 0},
                                                {"\xE0\x80\x80", 0}, {"xyz\xF0\x9F\x98", 3},
                                                {"\xC3\xA9\xC3z", 2}};
  for (const auto& [text, offset] : broken) {
    const auto status = CheckUtf8(text);
    EXPECT_EQ(status.code(), base::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("at byte {}:", offset)));
  }
}

// The table "U+FFFD for maximal subparts" of the Unicode standard, section 3.9.
TEST(UnicodeTest, EachMaximalPartBecomesOneReplacement) {
  EXPECT_EQ(Characters("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", 9),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Characters("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", 9),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(Characters("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", 9),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(Characters("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 9), "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(UnicodeTest, StopsBeforeAnUnfinishedCharacter) {
  EXPECT_EQ(Characters("", 0), "");
  EXPECT_EQ(Characters("a\xE4\xB8", 1), "a");
  EXPECT_EQ(Characters("a\xFF\xF0\x9F\x98", 2), "a\uFFFD");
  EXPECT_EQ(Characters("\xF0\x9F\x98\x80", 4), "\U0001F600");
}

TEST(UnicodeTest, KnowsWordsAndSpace) {
  EXPECT_TRUE(StartsWithWord("\u00E9 "));
  EXPECT_TRUE(EndsWithWord(" \u4E2D"));
  EXPECT_TRUE(EndsWithWord("-_"));
  EXPECT_FALSE(EndsWithWord("a-"));
  EXPECT_FALSE(StartsWithWord(""));
  EXPECT_FALSE(EndsWithWord(""));
  EXPECT_EQ(LeadingWhiteSpace(" \u3000\tx "), 5u);
  EXPECT_EQ(TrailingWhiteSpace("x \u00A0\n"), 4u);
  EXPECT_EQ(TrailingWhiteSpace(" \u2003"), 4u);
  EXPECT_EQ(LeadingWhiteSpace("\u200B"), 0u);
}

}  // namespace
}  // namespace longspan::text
