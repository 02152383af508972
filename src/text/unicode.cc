#include "text/unicode.h"

#include <cstdint>

#include <simdjson.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace longspan::text {
namespace {

using base::InvalidArgument;
using base::Status;

enum class Form { kWhole, kBroken, kUnfinished };

struct Character {
  Form form;
  size_t size;  // bytes of the character, of its broken part, or up to the end of the text
};

// What follows the first byte of a character: how many bytes, and the range of the first of them
// (Unicode standard, table 3-7). Zero bytes for what cannot start a character of several bytes.
struct Continuation {
  size_t count = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Continuation ContinuationOf(uint8_t first) {
  if (first < 0xC2 || first > 0xF4) return {};
  if (first < 0xE0) return {1};
  if (first == 0xE0) return {2, 0xA0};
  if (first == 0xED) return {2, 0x80, 0x9F};
  if (first < 0xF0) return {2};
  if (first == 0xF0) return {3, 0x90};
  if (first == 0xF4) return {3, 0x80, 0x8F};
  return {3};
}

Character FirstCharacter(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {Form::kWhole, 1};
  Continuation expected = ContinuationOf(first);
  if (expected.count == 0) return {Form::kBroken, 1};
  for (size_t i = 1; i <= expected.count; ++i) {
    if (i == bytes.size()) return {Form::kUnfinished, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < expected.low || byte > expected.high) return {Form::kBroken, i};
    expected.low = 0x80;
    expected.high = 0xBF;
  }
  return {Form::kWhole, expected.count + 1};
}

// \w of Unicode regular expressions (UTS 18, annex C).
bool IsWord(UChar32 character) {
  constexpr uint32_t kCategories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(character, UCHAR_ALPHABETIC) ||
         (U_GET_GC_MASK(character) & kCategories) != 0 ||
         u_hasBinaryProperty(character, UCHAR_JOIN_CONTROL);
}

UChar32 LastCharacter(std::string_view text, size_t& begin) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  auto position = static_cast<int32_t>(text.size());
  UChar32 character;
  U8_PREV(bytes, 0, position, character);
  begin = static_cast<size_t>(position);
  return character;
}

UChar32 FirstCharacter(std::string_view text, size_t& end) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  int32_t position = 0;
  UChar32 character;
  U8_NEXT(bytes, position, static_cast<int32_t>(text.size()), character);
  end = static_cast<size_t>(position);
  return character;
}

}  // namespace

Status CheckUtf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return base::OkStatus();
  size_t position = 0;
  while (position < text.size()) {
    const Character next = FirstCharacter(text.substr(position));
    if (next.form != Form::kWhole) break;
    position += next.size;
  }
  return InvalidArgument("the text is not UTF-8 at byte {}: convert it to UTF-8 first", position);
}

size_t AppendCharacters(std::string_view bytes, std::string& text) {
  size_t position = 0;
  size_t copied = 0;
  const auto flush = [&] { text.append(bytes.substr(copied, position - copied)); };
  while (position < bytes.size()) {
    const Character next = FirstCharacter(bytes.substr(position));
    if (next.form == Form::kUnfinished) break;
    if (next.form == Form::kBroken) {
      flush();
      text.append(kReplacementCharacter);
      copied = position + next.size;
    }
    position += next.size;
  }
  flush();
  return position;
}

bool StartsWithWord(std::string_view text) {
  size_t end = 0;
  return !text.empty() && IsWord(FirstCharacter(text, end));
}

bool EndsWithWord(std::string_view text) {
  size_t begin = 0;
  return !text.empty() && IsWord(LastCharacter(text, begin));
}

size_t LeadingWhiteSpace(std::string_view text) {
  size_t space = 0;
  while (space < text.size()) {
    size_t end = 0;
    if (!u_isUWhiteSpace(FirstCharacter(text.substr(space), end))) break;
    space += end;
  }
  return space;
}

size_t TrailingWhiteSpace(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t begin = 0;
    if (!u_isUWhiteSpace(LastCharacter(rest, begin))) break;
    rest = rest.substr(0, begin);
  }
  return text.size() - rest.size();
}

}  // namespace longspan::text
