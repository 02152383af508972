#include "text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace longspan::text {
namespace {

using base::Result;

// ICU moves each combining mark to its place by insertion, which takes quadratic time in a long run
// of them. Runs from this length on are put in order beforehand.
constexpr size_t kLongRun = 64;

const icu::Normalizer2& Checked(const icu::Normalizer2* normalizer, UErrorCode error) {
  LONGSPAN_CHECK(U_SUCCESS(error), "ICU has no normalization data: {}", u_errorName(error));
  return *normalizer;
}

const icu::Normalizer2& Nfc() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFCInstance(error);
  return Checked(normalizer, error);
}

const icu::Normalizer2& Nfd() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFDInstance(error);
  return Checked(normalizer, error);
}

icu::StringPiece Piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

// Whether the character, decomposed, begins with a combining mark that canonical ordering may move.
bool IsMark(UChar32 character) {
  return u_getIntPropertyValue(character, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0;
}

void AppendUtf8(UChar32 character, std::string& text) {
  uint8_t bytes[U8_MAX_LENGTH];
  int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, character);
  text.append(bytes, bytes + size);
}

// The marks decomposed and in canonical order: equivalent text, so of the same form C.
void AppendOrdered(const std::vector<UChar32>& marks, std::string& text) {
  std::vector<UChar32> ordered;
  ordered.reserve(marks.size());
  icu::UnicodeString decomposition;
  for (const UChar32 mark : marks) {
    if (!Nfd().getDecomposition(mark, decomposition)) {
      ordered.push_back(mark);
      continue;
    }
    for (int32_t i = 0; i < decomposition.length(); i = decomposition.moveIndex32(i, 1))
      ordered.push_back(decomposition.char32At(i));
  }
  std::ranges::stable_sort(ordered, {}, u_getCombiningClass);
  for (const UChar32 mark : ordered) AppendUtf8(mark, text);
}

// The text with its long runs of marks in order; nothing when it has none.
std::optional<std::string> OrderLongRuns(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const auto size = static_cast<int32_t>(text.size());
  std::optional<std::string> ordered;
  std::vector<UChar32> marks;
  size_t copied = 0;
  size_t run_begin = 0;
  const auto end_run = [&](size_t run_end) {
    if (marks.size() >= kLongRun) {
      if (!ordered) ordered.emplace();
      ordered->append(text.substr(copied, run_begin - copied));
      AppendOrdered(marks, *ordered);
      copied = run_end;
    }
    marks.clear();
  };
  for (int32_t position = 0; position < size;) {
    const auto begin = static_cast<size_t>(position);
    if (marks.empty() && bytes[begin] < 0x80) {
      ++position;
      continue;
    }
    UChar32 character;
    U8_NEXT_UNSAFE(bytes, position, character);
    if (!IsMark(character)) {
      end_run(begin);
      continue;
    }
    if (marks.empty()) run_begin = begin;
    marks.push_back(character);
  }
  end_run(text.size());
  if (ordered) ordered->append(text.substr(copied));
  return ordered;
}

}  // namespace

Result<std::optional<std::string>> ToNfc(std::string_view text) {
  // Before ICU looks at it at all: its check of a long run takes quadratic time as well.
  const std::optional<std::string> ordered = OrderLongRuns(text);
  const icu::StringPiece piece = Piece(ordered ? *ordered : text);
  UErrorCode error = U_ZERO_ERROR;
  if (!ordered && Nfc().isNormalizedUTF8(piece, error) && U_SUCCESS(error))
    return std::optional<std::string>();
  std::string normalized;
  normalized.reserve(text.size());
  icu::StringByteSink<std::string> sink(&normalized);
  Nfc().normalizeUTF8(0, piece, sink, nullptr, error);
  if (U_FAILURE(error))
    return base::Internal("cannot normalize a text of {} bytes: {}", text.size(),
                          u_errorName(error));
  if (normalized == text) return std::optional<std::string>();
  return std::optional(std::move(normalized));
}

}  // namespace longspan::text
