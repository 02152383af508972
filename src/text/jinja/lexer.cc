#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja/error.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// As Jinja2: every line break is "\n", and one at the very end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string normal;
  normal.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    normal += source[i] == '\r' ? '\n' : source[i];
  }
  if (!normal.empty() && normal.back() == '\n') normal.pop_back();
  return normal;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (position_ < source_.size()) ReadData();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool Sees(std::string_view text) const { return rest().substr(0, text.size()) == text; }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  [[noreturn]] void Fail(std::string message) const {
    throw JinjaError{base::StatusCode::kInvalidArgument, std::move(message), line_};
  }

  // Moves on, counting lines.
  void Advance(size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(position_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    position_ += bytes;
  }

  void ReadData() {
    const size_t tag = FindTag();
    if (tag == std::string::npos) {
      AddData(rest());
      Advance(source_.size() - position_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    AddData(StrippedBefore(rest().substr(0, tag - position_), sign, kind != '{'));
    Advance(tag - position_ + 2);
    if (sign == '-' || sign == '+') Advance(1);
    if (kind == '#') {
      ReadComment();
    } else if (kind == '{') {
      Add(TokenKind::kVariableBegin, "{{");
      ReadTag("}}", TokenKind::kVariableEnd);
    } else if (!ReadRaw()) {
      Add(TokenKind::kBlockBegin, "{%");
      ReadTag("%}", TokenKind::kBlockEnd);
    }
  }

  size_t FindTag() const {
    for (size_t at = source_.find('{', position_);
         at + 1 < source_.size() && at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = source_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  void AddData(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }

  // The text before a tag without what "-" or lstrip_blocks takes away.
  std::string_view StrippedBefore(std::string_view text, char sign, bool is_block) const {
    if (sign == '-') return StripRight(text, std::nullopt);
    if (sign == '+' || !is_block) return text;
    const size_t line_start = text.rfind('\n') + 1;  // 0 when there is none
    if (line_start == 0 && !at_line_start_) return text;
    const std::string_view indent = text.substr(line_start);
    return LeadingSpace(indent) == indent.size() ? text.substr(0, line_start) : text;
  }

  // Skips the end of a tag and what it takes away after it. False when there is no such end here.
  bool SkipEnd(std::string_view end, bool trims_newline) {
    size_t bytes = 0;
    if (rest().substr(0, 1) == "-" && rest().substr(1, 2) == end) {
      bytes = 3 + LeadingSpace(rest().substr(3));
    } else if (trims_newline && rest().substr(0, 1) == "+" && rest().substr(1, 2) == end) {
      bytes = 3;
    } else if (Sees(end)) {
      bytes = trims_newline && rest().substr(2, 1) == "\n" ? 3 : 2;
    } else {
      return false;
    }
    Advance(bytes);
    at_line_start_ = source_[position_ - 1] == '\n';
    return true;
  }

  void ReadComment() {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) Fail("the comment '{#' has no end '#}'");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end - position_ - (sign == '-' || sign == '+' ? 1 : 0));
    SkipEnd("#}", true);
  }

  // {% raw %}...{% endraw %}; false when another block begins here.
  bool ReadRaw() {
    size_t ahead = LeadingSpace(rest());
    if (rest().substr(ahead, 3) != "raw") return false;
    ahead += 3;
    ahead += LeadingSpace(rest().substr(ahead));
    const std::string_view end = rest().substr(ahead);
    if (end.substr(0, 2) != "%}" && end.substr(0, 3) != "-%}") return false;
    Advance(ahead);
    SkipEnd("%}", false);
    for (size_t at = source_.find("{%", position_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      const size_t start = position_;
      const char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
      size_t name = at + (sign == '-' || sign == '+' ? 3 : 2);
      name += LeadingSpace(std::string_view(source_).substr(std::min(name, source_.size())));
      if (source_.compare(std::min(name, source_.size()), 6, "endraw") != 0) continue;
      name += 6;
      name += LeadingSpace(std::string_view(source_).substr(name));
      const std::string_view closing = std::string_view(source_).substr(name, 3);
      if (closing.substr(0, 2) != "%}" && closing != "-%}" && closing != "+%}") continue;
      AddData(StrippedBefore(std::string_view(source_).substr(start, at - start), sign, true));
      Advance(name - start);
      SkipEnd("%}", true);
      return true;
    }
    Fail("'{% raw %}' has no '{% endraw %}'");
  }

  void ReadTag(std::string_view end, TokenKind end_kind) {
    brackets_.clear();
    const int begin_line = line_;
    while (true) {
      Advance(LeadingSpace(rest()));
      if (position_ >= source_.size()) {
        line_ = begin_line;
        Fail(fmt::format("a tag has no end '{}'", end));
      }
      if (brackets_.empty()) {
        const int line = line_;
        if (SkipEnd(end, end_kind == TokenKind::kBlockEnd)) {
          tokens_.push_back({end_kind, std::string(end), line});
          return;
        }
      }
      ReadToken();
    }
  }

  void ReadToken() {
    const char c = source_[position_];
    if (IsDigit(c)) return ReadNumber();
    if (c == '\'' || c == '"') return ReadString(c);
    if (IsNameStart(c)) {
      size_t length = 1;
      while (length < rest().size() && (IsNameStart(rest()[length]) || IsDigit(rest()[length])))
        ++length;
      Add(TokenKind::kName, std::string(rest().substr(0, length)));
      return Advance(length);
    }
    ReadOperator();
  }

  // The length of digits with single underscores between them, from `at` on.
  size_t DigitsAt(size_t at) const {
    size_t end = at;
    while (end < source_.size() &&
           (IsDigit(source_[end]) || (source_[end] == '_' && end > at && end + 1 < source_.size() &&
                                      IsDigit(source_[end + 1]))))
      ++end;
    return end - at;
  }

  void ReadNumber() {
    const size_t whole = DigitsAt(position_);
    size_t end = position_ + whole;
    bool is_float = false;
    // After a dot ("a.0.1") a number is a key, never a fraction.
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    if (!after_dot && end < source_.size() && source_[end] == '.' && DigitsAt(end + 1) > 0) {
      end += 1 + DigitsAt(end + 1);
      is_float = true;
    }
    if (!after_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const bool has_sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      const size_t exponent = end + 1 + (has_sign ? 1 : 0);
      if (DigitsAt(exponent) > 0) {
        end = exponent + DigitsAt(exponent);
        is_float = true;
      }
    }
    if (end < source_.size() && (IsNameStart(source_[end]) || IsDigit(source_[end])))
      Fail(fmt::format("'{}' is not a number that this template engine reads",
                       source_.substr(position_, end - position_ + 1)));
    if (!is_float && whole > 1 && source_[position_] == '0' &&
        rest().substr(0, whole).find_first_not_of("0_") != std::string_view::npos)
      Fail("a number must not begin with 0");
    std::string digits = source_.substr(position_, end - position_);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(digits));
    Advance(end - position_);
  }

  void ReadString(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("a string has no closing quote");
    Add(TokenKind::kString,
        Unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    Advance(end + 1 - position_);
  }

  // Python's unicode-escape, as Jinja2 applies it.
  std::string Unescape(std::string_view raw) const {
    std::string text;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        text += raw[i];
        continue;
      }
      static constexpr std::string_view kLetters = "\\'\"abfnrtv";
      static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
      const char c = raw[++i];
      if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
        text += kMeanings[found];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        i += AppendCharacter(OctalDigits(raw.substr(i)), 8, &text) - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        i += AppendCharacter(HexDigits(raw.substr(i + 1), count), 16, &text);
      } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
        throw JinjaError{base::StatusCode::kUnimplemented,
                         "the escape \\N or \\ before a character beyond ASCII in a string", line_};
      } else {
        text += '\\';
        text += c;
      }
    }
    return text;
  }

  // Appends the character that `digits` name; returns their number.
  size_t AppendCharacter(std::string_view digits, int base, std::string* text) const {
    char32_t code_point = 0;
    for (const char c : digits) {
      const auto digit = ParseInteger(std::string_view(&c, 1), base);
      if (!digit.has_value()) Fail("a string has a broken \\x, \\u or \\U escape");
      code_point = code_point * static_cast<char32_t>(base) + static_cast<char32_t>(*digit);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000))
      Fail("a string escape names no Unicode character");
    AppendCodePoint(code_point, text);
    return digits.size();
  }

  // The next `count` characters, which must be there.
  std::string_view HexDigits(std::string_view raw, size_t count) const {
    if (raw.size() < count) Fail("a string has a broken \\x, \\u or \\U escape");
    return raw.substr(0, count);
  }

  static std::string_view OctalDigits(std::string_view raw) {
    return raw.substr(0, std::min(raw.find_first_not_of("01234567"), size_t{3}));
  }

  void ReadOperator() {
    static constexpr std::array<std::string_view, 6> kDouble = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    std::string text;
    for (const std::string_view candidate : kDouble)
      if (Sees(candidate)) text = candidate;
    if (text.empty() && kSingle.find(source_[position_]) != std::string_view::npos)
      text = source_.substr(position_, 1);
    if (text.empty())
      Fail(fmt::format("unexpected character '{}'",
                       rest().substr(0, CharacterBytes(source_, position_))));
    Balance(text[0]);
    Add(TokenKind::kOperator, text);
    Advance(text.size());
  }

  void Balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) Fail(fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c)
      Fail(fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // the last tag ended with a line break
  std::string brackets_;       // the closing brackets that are awaited
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  if (source.size() > kMaxTemplateBytes)
    FailExhausted("the template is larger than {} bytes", kMaxTemplateBytes);
  return Lexer(source).Run();
}

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kData:
      return "text outside of tags";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace longspan::text
