// Python's view of text, on UTF-8: code points as characters, str.strip, repr, case mapping,
// float(). Text that is not valid UTF-8 is never misread past its end; broken bytes count as one
// character each.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace longspan::text {

// The number of bytes of the character that starts at `position`, at least 1.
size_t CharacterBytes(std::string_view text, size_t position);
// The number of characters; with them the byte offsets where they start, and the end.
size_t CountCharacters(std::string_view text);
std::vector<size_t> CharacterOffsets(std::string_view text);
void AppendCodePoint(char32_t code_point, std::string* out);
// The code point at `position`; U+FFFD for broken bytes.
char32_t CodePointAt(std::string_view text, size_t position);

// Whether str.isspace holds for a character, and the number of bytes of white space at the ends.
bool IsPythonSpace(char32_t code_point);
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);
// str.strip: of white space, or of any of `characters`.
std::string_view StripLeft(std::string_view text, std::optional<std::string_view> characters);
std::string_view StripRight(std::string_view text, std::optional<std::string_view> characters);

// str.find in linear time; npos when absent.
size_t FindText(std::string_view text, std::string_view part, size_t from = 0);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitleFirst(std::string_view text);  // str.capitalize
// str.splitlines.
std::vector<std::string_view> SplitLines(std::string_view text);

// repr() of a str and of numbers.
std::string StringRepr(std::string_view text);
std::string FloatRepr(double value);
std::string IntegerText(Integer value);
// int(text, base) and float(text); none where Python raises ValueError, and for integers beyond 128
// bits.
std::optional<Integer> ParseInteger(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace longspan::text
