// UTF-8 and Unicode: well-formedness, replacement of what is broken, and the two classes of
// characters that added tokens look at.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longspan::text {

// InvalidArgument with the offset of the first byte that does not belong to a character.
base::Status CheckUtf8(std::string_view text);

// Appends `bytes` to `text` as UTF-8: each maximal part of a character that is broken becomes one
// U+FFFD (as the Unicode standard recommends and as Rust and browsers do). Stops before a character
// that only lacks its last bytes; returns how many bytes were used.
size_t AppendCharacters(std::string_view bytes, std::string& text);

// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Of a text in UTF-8: whether it starts or ends with a character of a word (\w: letters, marks,
// decimal digits, connectors); how many bytes of white space it starts or ends with.
bool StartsWithWord(std::string_view text);
bool EndsWithWord(std::string_view text);
size_t LeadingWhiteSpace(std::string_view text);
size_t TrailingWhiteSpace(std::string_view text);

}  // namespace longspan::text
