#include "text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/regex_syntax.h"

namespace longspan::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(const Regex& regex, std::string_view text) {
  std::vector<RegexMatch> ranges;
  EXPECT_TRUE(regex.FindAll(text, ranges).ok());
  std::vector<std::string> matches;
  for (const RegexMatch& range : ranges)
    matches.emplace_back(text.substr(range.begin, range.end - range.begin));
  return matches;
}

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  return regex.ok() ? Matches(*regex, text) : std::vector<std::string>();
}

TEST(RegexTest, ClassesAreUnicode) {
  EXPECT_THAT(Matches(R"(\p{L}+)", "na\u00EFve \u4E2D\u6587 1"),
              ElementsAre("na\u00EFve", "\u4E2D\u6587"));
  EXPECT_THAT(Matches(R"(\s+)", "a\u00A0\u3000b\x0B c\u180E"),
              ElementsAre("\u00A0\u3000", "\x0B "));
  EXPECT_THAT(Matches(R"([^\s\w]+)", "a\u180E_-. e\u0301"), ElementsAre("\u180E", "-."));
  EXPECT_THAT(Matches(R"(\w+)", "e\u0301_1-"), ElementsAre("e\u0301_1"));
  EXPECT_THAT(Matches(R"(\h+)", "xAfg09"), ElementsAre("Af", "09"));
  EXPECT_THAT(Matches("(?i:'s)", "'s'S'\u017F's"), ElementsAre("'s", "'S", "'\u017F", "'s"));
  EXPECT_THAT(Matches(R"(\u4e2d|\x{6587})", "\u4E2D\u6587x"), ElementsAre("\u4E2D", "\u6587"));
  // Script, not script extensions: U+3001 is used with Han, and belongs to no script.
  EXPECT_THAT(Matches(R"(\p{Han}+)", "\u4E2D\u3001\u6587"), ElementsAre("\u4E2D", "\u6587"));
}

TEST(RegexTest, LooksAhead) {
  EXPECT_THAT(Matches(R"(\s+(?!\S)|\s)", "a   b  "), ElementsAre("  ", " ", "  "));
}

TEST(RegexTest, LinesEndAtLineFeeds) {
  EXPECT_THAT(Matches("^.", "ab\ncd\re"), ElementsAre("a", "c"));
  EXPECT_THAT(Matches(".$", "ab\ncd\re"), ElementsAre("b", "e"));
}

TEST(RegexTest, EmptyMatchesDoNotTouchTheOneBefore) {
  const auto regex = Regex::Compile("b*");
  std::vector<RegexMatch> ranges;
  ASSERT_TRUE(regex->FindAll("abb\u4E2D", ranges).ok());
  std::vector<std::pair<size_t, size_t>> pairs;
  for (const RegexMatch& range : ranges) pairs.emplace_back(range.begin, range.end);
  EXPECT_THAT(pairs, ElementsAre(std::pair(0, 0), std::pair(1, 3), std::pair(6, 6)));
}

TEST(RegexTest, LiteralsAreTakenAsTheyAre) {
  const auto literal = Regex::Literal("a.\\E[\u4E2D");
  ASSERT_TRUE(literal.ok());
  EXPECT_THAT(Matches(*literal, "ab\\E[\u4E2D a.\\E[\u4E2D"), ElementsAre("a.\\E[\u4E2D"));
}

TEST(RegexTest, LongRunsMatchWhole) {
  const std::string letters(1 << 20, 'x');
  EXPECT_THAT(Matches(R"([^\r\n\p{L}]?\p{L}+|\s*[\r\n]+)", letters), ElementsAre(letters));
  const std::string spaces(1 << 20, ' ');
  EXPECT_THAT(Matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces), ElementsAre(spaces));
}

TEST(RegexTest, RefusesWhatPcre2ReadsOtherwise) {
  for (const char* pattern :
       {R"([\p{L}&&[^a]])", R"([a[bc]])", R"(\bx)", R"([\W])", R"(a{1,2}+)", "(?m:.)", R"(\X)",
        R"(\Qa\E)", R"(\u12)", R"(\pL)", "a(?i)b", R"(\R)"}) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_EQ(regex.status().code(), base::StatusCode::kUnimplemented) << pattern;
  }
}

TEST(RegexTest, BrokenExpressionsAreErrors) {
  for (const char* pattern : {"(", "[a", "a**b(", "\\", R"(\p{Nonsense})", "(?<", "x{2,1}"}) {
    const auto regex = Regex::Compile(pattern);
    EXPECT_FALSE(regex.ok()) << pattern;
  }
  EXPECT_THAT(Regex::Compile("(a").status().message(), HasSubstr("\"(a\" is broken"));
}

}  // namespace
}  // namespace longspan::text
