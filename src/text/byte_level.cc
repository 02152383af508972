#include "text/byte_level.h"

#include <array>

namespace longspan::text {
namespace {

// All characters of the alphabet lie below this: at most two bytes of UTF-8 each.
constexpr int kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int, kAlphabetEnd> byte_of;  // -1: not in the alphabet
};

bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable Latin-1 characters spell themselves; the others are numbered from U+0100 on.
Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = IsPrintable(byte) ? byte : next++;
    alphabet.byte_of[character] = byte;
    std::string& spelling = alphabet.spelling[byte];
    if (character < 0x80) {
      spelling.push_back(static_cast<char>(character));
    } else {
      spelling.push_back(static_cast<char>(0xC0 | (character >> 6)));
      spelling.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

std::string_view ByteSpelling(uint8_t byte) { return TheAlphabet().spelling[byte]; }

bool AppendSpelledBytes(std::string_view spelled, std::string& bytes) {
  const Alphabet& alphabet = TheAlphabet();
  const size_t begin = bytes.size();
  for (size_t i = 0; i < spelled.size(); ++i) {
    int character = static_cast<uint8_t>(spelled[i]);
    if (character >= 0x80) {
      const bool two_bytes = (character & 0xE0) == 0xC0 && i + 1 < spelled.size();
      character =
          two_bytes ? (character & 0x1F) << 6 | (static_cast<uint8_t>(spelled[++i]) & 0x3F) : -1;
    }
    const bool known = character >= 0 && character < kAlphabetEnd;
    const int byte = known ? alphabet.byte_of[character] : -1;
    if (byte < 0) {
      bytes.resize(begin);
      return false;
    }
    bytes.push_back(static_cast<char>(byte));
  }
  return true;
}

}  // namespace longspan::text
