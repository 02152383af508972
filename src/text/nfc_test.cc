#include "text/nfc.h"

#include <random>

#include <gtest/gtest.h>
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>

namespace longspan::text {
namespace {

std::string Normalized(const std::string& text) {
  const auto normalized = ToNfc(text);
  EXPECT_TRUE(normalized.ok());
  return normalized->value_or(text);
}

// ICU alone.
std::string Reference(const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  std::string normalized;
  icu::Normalizer2::getNFCInstance(error)
      ->normalize(icu::UnicodeString::fromUTF8(text), error)
      .toUTF8String(normalized);
  EXPECT_TRUE(U_SUCCESS(error));
  return normalized;
}

TEST(NfcTest, ComposesCharacters) {
  EXPECT_EQ(Normalized("cafe\u0301 \u1100\u1161\u11A8 \u212B"), "caf\u00E9 \uAC01 \u00C5");
}

TEST(NfcTest, TextThatIsInFormCAlreadyStays) {
  for (const std::string text : {"", "abc", "caf\u00E9 \u4E2D", "a\u0316\u0301\u0301"})
    EXPECT_EQ(Normalized(text), Reference(text));
  EXPECT_EQ(*ToNfc("caf\u00E9"), std::nullopt);
  std::string marks = "x";
  for (int i = 0; i < 100; ++i) marks += "\u0316";
  EXPECT_EQ(*ToNfc(marks), std::nullopt);
}

TEST(NfcTest, RunsOfMarksOfAnyLengthAreOrderedAsIcuOrdersThem) {
  // Marks of several classes; U+0344 and U+0F73 decompose into two, U+0338 composes with U+003D.
  const char* const marks[] = {"\u0301", "\u0316", "\u0338", "\u0344", "\u0F73",
                               "\u0F74", "\u0345", "\u0327", "\u3099"};
  const char* const starters[] = {"a", "=", "\u00E9", "\u1EA5", "\u304B", ""};
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (int part = 0; part < 4; ++part) {
      text += starters[random() % std::size(starters)];
      const size_t count = random() % 100;
      for (size_t i = 0; i < count; ++i) text += marks[random() % std::size(marks)];
    }
    ASSERT_EQ(Normalized(text), Reference(text)) << text;
  }
}

TEST(NfcTest, ALongRunOfMarksIsNotQuadratic) {
  std::string text = "a";
  for (int i = 0; i < 60000; ++i) text += "\u0301\u0316\u0F73";
  const std::string normalized = Normalized(text);
  EXPECT_EQ(*ToNfc(normalized), std::nullopt);
  EXPECT_TRUE(normalized.starts_with("\u00E1\u0F71\u0F71"));
}

}  // namespace
}  // namespace longspan::text
