#include "text/jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "text/jinja/error.h"

namespace longspan::text {
namespace {

bool IsContinuation(std::string_view text, size_t position) {
  return position < text.size() && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80;
}

// What repr() writes as it is; str.isprintable of Python.
bool IsPrintable(char32_t code_point) {
  if (code_point == ' ') return true;
  switch (u_charType(static_cast<UChar32>(code_point))) {
    case U_UNASSIGNED:
    case U_SPACE_SEPARATOR:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_PRIVATE_USE_CHAR:
    case U_SURROGATE:
      return false;
    default:
      return true;
  }
}

bool IsOneOf(std::string_view characters, std::string_view character) {
  for (size_t i = 0; i < characters.size(); i += CharacterBytes(characters, i))
    if (characters.substr(i, CharacterBytes(characters, i)) == character) return true;
  return false;
}

bool IsStripped(std::string_view character, std::optional<std::string_view> characters) {
  return characters.has_value() ? IsOneOf(*characters, character)
                                : IsPythonSpace(CodePointAt(character, 0));
}

std::string Utf8(const icu::UnicodeString& text) {
  std::string utf8;
  text.toUTF8String(utf8);
  return utf8;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Python lets one underscore stand between digits.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && std::isalnum(text[i - 1]) != 0 &&
                         std::isalnum(text[i + 1]) != 0;
    if (!between) return std::nullopt;
  }
  return digits;
}

}  // namespace

size_t CharacterBytes(std::string_view text, size_t position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  const size_t bytes = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  for (size_t i = 1; i < bytes; ++i)
    if (!IsContinuation(text, position + i)) return 1;
  return bytes;
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += CharacterBytes(text, i)) ++count;
  return count;
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); i += CharacterBytes(text, i)) offsets.push_back(i);
  offsets.push_back(text.size());
  return offsets;
}

void AppendCodePoint(char32_t code_point, std::string* out) {
  const auto put = [&](char32_t bits) { out->push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

char32_t CodePointAt(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + i]));
  };
  switch (CharacterBytes(text, position)) {
    case 1:
      return byte(0) < 0x80 ? byte(0) : 0xFFFD;
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

size_t LeadingSpace(std::string_view text) {
  return text.size() - StripLeft(text, std::nullopt).size();
}

size_t TrailingSpace(std::string_view text) {
  return text.size() - StripRight(text, std::nullopt).size();
}

std::string_view StripLeft(std::string_view text, std::optional<std::string_view> characters) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text, 0);
    if (!IsStripped(text.substr(0, bytes), characters)) break;
    text.remove_prefix(bytes);
  }
  return text;
}

std::string_view StripRight(std::string_view text, std::optional<std::string_view> characters) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && IsContinuation(text, start)) --start;
    if (start + CharacterBytes(text, start) != text.size()) start = text.size() - 1;
    if (!IsStripped(text.substr(start), characters)) break;
    text = text.substr(0, start);
  }
  return text;
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // memmem is linear where string_view::find can be quadratic.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string ToUpper(std::string_view text) {
  std::string upper(text);
  if (!IsAscii(text))
    return Utf8(icu::UnicodeString::fromUTF8(upper).toUpper(icu::Locale::getRoot()));
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return upper;
}

std::string ToLower(std::string_view text) {
  std::string lower(text);
  if (!IsAscii(text))
    return Utf8(icu::UnicodeString::fromUTF8(lower).toLower(icu::Locale::getRoot()));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::string ToTitleFirst(std::string_view text) {
  if (text.empty()) return {};
  const size_t first = CharacterBytes(text, 0);
  const char32_t code_point = CodePointAt(text, 0);
  // Characters that become several (such as U+00DF) have their title form in the upper one: "Ss".
  std::string head = ToUpper(text.substr(0, first));
  if (CountCharacters(head) > 1) {
    const size_t lead = CharacterBytes(head, 0);
    head = head.substr(0, lead) + ToLower(std::string_view(head).substr(lead));
  } else if (code_point != 0xFFFD) {
    head.clear();
    AppendCodePoint(static_cast<char32_t>(u_totitle(static_cast<UChar32>(code_point))), &head);
  }
  return head + ToLower(text.substr(first));
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = CharacterBytes(text, i);
    const char32_t c = CodePointAt(text, i);
    const bool ends_line = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                           c == 0x2028 || c == 0x2029;
    const size_t next = i + bytes;
    if (ends_line) {
      lines.push_back(text.substr(start, i - start));
      start = c == '\r' && next < text.size() && text[next] == '\n' ? next + 1 : next;
      i = start;
    } else {
      i = next;
    }
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string StringRepr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string repr(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = CharacterBytes(text, i);
    const char32_t c = CodePointAt(text, i);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      repr += '\\';
      repr += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      repr += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(c)) {
      repr += text.substr(i, bytes);
    } else if (c < 0x100) {
      repr += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      repr += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      repr += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    i += bytes;
  }
  return repr + quote;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), std::abs(value),
                                 std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = shortest.find('e');
  std::string digits(shortest.substr(0, 1));
  if (mark > 2) digits += shortest.substr(2, mark - 2);
  const int exponent = std::atoi(std::string(shortest.substr(mark + 1)).c_str());
  const auto count = static_cast<int>(digits.size());
  const std::string sign = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, 1, '.');
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return sign + digits +
           std::string(static_cast<size_t>(exponent) + 1 - static_cast<size_t>(count), '0') + ".0";
  const auto whole = static_cast<size_t>(exponent) + 1;
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string IntegerText(Integer value) { return fmt::format("{}", value); }

std::optional<Integer> ParseInteger(std::string_view text, int base) {
  text = StripRight(StripLeft(text, std::nullopt), std::nullopt);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const char mark = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b')) {
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  }
  const auto digits = WithoutUnderscores(text);
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  Integer value = 0;
  for (const char c : *digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : base;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Integer(base), &value) ||
        __builtin_add_overflow(value, Integer(digit), &value))
      FailUnimplemented("integers beyond 128 bits");
  }
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view text) {
  text = StripRight(StripLeft(text, std::nullopt), std::nullopt);
  const auto plain = WithoutUnderscores(text);
  if (!plain.has_value() || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  // from_chars knows "inf", "infinity" and "nan" as Python does, and a second sign, which Python
  // refuses.
  if (digits.empty() || digits[0] == '-' || digits.find('(') != std::string_view::npos)
    return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ptr != digits.data() + digits.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range)
    value = std::strtod(std::string(digits).c_str(), nullptr);
  else if (result.ec != std::errc())
    return std::nullopt;
  return negative ? -value : value;
}

}  // namespace longspan::text
