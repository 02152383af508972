// The alphabet in which byte-level tokenizers spell bytes: each of the 256 bytes is one printable
// Unicode character, as GPT-2 introduced it ("Ġ" is a space, "Ċ" a line feed).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace longspan::text {

// The character that spells the byte, in UTF-8. Lives for the whole program.
std::string_view ByteSpelling(uint8_t byte);

// Appends the bytes that `spelled` (valid UTF-8) stands for. False, with nothing appended, when it
// has a character outside the alphabet.
bool AppendSpelledBytes(std::string_view spelled, std::string& bytes);

}  // namespace longspan::text
