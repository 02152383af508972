#include "text/stop_matcher.h"

#include <gtest/gtest.h>

namespace longspan::text {
namespace {

// Feeds the text in pieces of every size; the result must not depend on it.
std::string Through(const std::string& text, const std::vector<std::string>& stops, size_t piece,
                    bool* matched) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += matcher.Append(text.substr(at, piece));
  *matched = matcher.matched();
  return out + matcher.Finish();
}

TEST(StopMatcherTest, EndsBeforeTheFirstStopAtAnySplit) {
  for (size_t piece = 1; piece < 12; ++piece) {
    bool matched = false;
    EXPECT_EQ(Through("one two three", {"three", "two"}, piece, &matched), "one ");
    EXPECT_TRUE(matched);
    EXPECT_EQ(Through("ababac", {"abac"}, piece, &matched), "ab");
    EXPECT_TRUE(matched);
  }
}

TEST(StopMatcherTest, TellsWhichStopItWas) {
  StopMatcher matcher({"three", "two"});
  matcher.Append("one t");
  EXPECT_FALSE(matcher.matched_string());
  matcher.Append("wo three");
  EXPECT_EQ(matcher.matched_string(), "two");
}

TEST(StopMatcherTest, WhatOnlyLookedLikeAStopComesOut) {
  for (size_t piece = 1; piece < 8; ++piece) {
    bool matched = true;
    EXPECT_EQ(Through("almost sto", {"stop"}, piece, &matched), "almost sto");
    EXPECT_FALSE(matched);
  }
}

TEST(StopMatcherTest, HoldsBackOnlyAPossibleBeginning) {
  StopMatcher matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.Append("Hello\n"), "Hello");
  EXPECT_EQ(matcher.Append("world"), "\nworld");
  EXPECT_EQ(matcher.Append("\n\nUser"), "");
  EXPECT_EQ(matcher.Append(": x"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Append("more"), "");
}

TEST(StopMatcherTest, EmptyStopsNeverMatch) {
  bool matched = true;
  EXPECT_EQ(Through("text", {""}, 2, &matched), "text");
  EXPECT_FALSE(matched);
}

}  // namespace
}  // namespace longspan::text
