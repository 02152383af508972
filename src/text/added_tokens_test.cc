#include "text/added_tokens.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(const AddedTokenMatcher& matcher, std::string_view text) {
  std::vector<TextPart> parts;
  matcher.Split(text, parts);
  std::vector<std::string> shown;
  for (const TextPart& part : parts)
    shown.push_back(part.id < 0 ? std::string(part.text)
                                : fmt::format("{}:{}", part.id, part.text));
  return shown;
}

AddedToken Token(int32_t id, std::string content) {
  return {.id = id, .content = std::move(content)};
}

TEST(AddedTokensTest, LeftmostThenLongest) {
  const AddedTokenMatcher matcher({Token(1, "<a>"), Token(2, "<a><b>"), Token(3, "<b><a>")});
  EXPECT_THAT(Split(matcher, "x<a><b><a>y"), ElementsAre("x", "2:<a><b>", "1:<a>", "y"));
  EXPECT_THAT(Split(matcher, "<a<a>"), ElementsAre("<a", "1:<a>"));
  EXPECT_THAT(Split(matcher, "<b><b><a>"), ElementsAre("<b>", "3:<b><a>"));
  EXPECT_THAT(Split(matcher, ""), ElementsAre());
}

TEST(AddedTokensTest, TakesWhiteSpaceAlong) {
  AddedToken left = Token(1, "<L>");
  left.lstrip = true;
  AddedToken right = Token(2, "<R>");
  right.rstrip = true;
  const AddedTokenMatcher matcher({left, right});
  EXPECT_THAT(Split(matcher, "a \u3000<L> b"), ElementsAre("a", "1: \u3000<L>", " b"));
  EXPECT_THAT(Split(matcher, "a <R>\n b"), ElementsAre("a ", "2:<R>\n ", "b"));
  EXPECT_THAT(Split(matcher, "<R> <L>"), ElementsAre("2:<R> ", "1:<L>"));
}

TEST(AddedTokensTest, SingleWordsStandAlone) {
  AddedToken word = Token(1, "ab");
  word.single_word = true;
  const AddedTokenMatcher matcher({word});
  EXPECT_THAT(Split(matcher, "ab-ab"), ElementsAre("1:ab", "-", "1:ab"));
  EXPECT_THAT(Split(matcher, "abab ab_"), ElementsAre("abab ab_"));
  EXPECT_THAT(Split(matcher, "\u00E9ab"), ElementsAre("\u00E9ab"));
}

TEST(AddedTokensTest, TokensWithoutContentAreNeverFound) {
  EXPECT_THAT(Split(AddedTokenMatcher({Token(1, "")}), "ab"), ElementsAre("ab"));
}

}  // namespace
}  // namespace longspan::text
