#include "text/regex_syntax.h"

#include <algorithm>
#include <cctype>

namespace longspan::text {
namespace {

using base::Result;
using base::Status;

// Escapes that both engines read alike; those of punctuation and digits are alike as well.
constexpr std::string_view kSameEscapes = "dDrntfaexAzG";
constexpr std::string_view kSpace = R"(\p{WSpace})";
constexpr std::string_view kNoSpace = R"(\P{WSpace})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> Run() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\\') {
        LONGSPAN_RETURN_IF_ERROR(Escape());
      } else if (in_class_) {
        LONGSPAN_RETURN_IF_ERROR(InClass(c));
      } else {
        LONGSPAN_RETURN_IF_ERROR(OutsideClass(c));
      }
    }
    return std::move(out_);
  }

 private:
  static Status Unsupported(std::string_view construct) {
    return base::Unimplemented("the regular expression uses {}, which is not supported", construct);
  }

  void Copy(size_t count) {
    out_.append(rest_.substr(0, count));
    rest_.remove_prefix(std::min(count, rest_.size()));
  }

  void Replace(size_t count, std::string_view by) {
    out_.append(by);
    rest_.remove_prefix(count);
  }

  // A set of characters that is `members` in brackets; a complement inside a class has no spelling.
  Status Set(std::string_view members, bool complement) {
    if (in_class_ && complement) return Unsupported("a complement like \\W inside a class");
    if (in_class_) {
      Replace(2, members);
    } else {
      Replace(2, fmt::format("[{}{}]", complement ? "^" : "", members));
    }
    return base::OkStatus();
  }

  Status Escape() {
    const char c = rest_.size() > 1 ? rest_[1] : '\0';
    switch (c) {
      case 's':
        Replace(2, kSpace);
        return base::OkStatus();
      case 'S':
        Replace(2, kNoSpace);
        return base::OkStatus();
      case 'w':
      case 'W':
        return Set(kWord, c == 'W');
      case 'h':
      case 'H':
        return Set(kHexDigit, c == 'H');
      case 'v':
        Replace(2, R"(\x0B)");
        return base::OkStatus();
      case 'u':
        return CodePoint();
      case 'p':
      case 'P':
        return Property();
      default:
        break;
    }
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (letter && kSameEscapes.find(c) == std::string_view::npos)
      return Unsupported(fmt::format("\\{}", c));
    Copy(2);
    if (c == 'x' && rest_.starts_with('{')) Copy(rest_.find('}') + 1);
    return base::OkStatus();
  }

  // \uHHHH
  Status CodePoint() {
    const std::string_view digits = rest_.substr(2, 4);
    const bool whole = digits.size() == 4 && std::ranges::all_of(digits, [](unsigned char digit) {
                         return std::isxdigit(digit) != 0;
                       });
    if (!whole) return Unsupported("\\u without four digits");
    Replace(6, fmt::format("\\x{{{}}}", digits));
    return base::OkStatus();
  }

  // General categories (one or two letters) are copied, longer names are scripts.
  Status Property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos)
      return Unsupported("\\p without a name in braces");
    std::string_view name = rest_.substr(3, end - 3);
    const std::string_view negation = name.starts_with('^') ? "^" : "";
    name.remove_prefix(negation.size());
    const std::string_view kind = name.size() > 2 ? "sc:" : "";
    Replace(end + 1, fmt::format("\\{}{{{}{}{}}}", rest_[1], negation, kind, name));
    return base::OkStatus();
  }

  Status InClass(char c) {
    if (rest_.starts_with("&&")) return Unsupported("an intersection (&&) of classes");
    if (c == '[') return Unsupported("a class inside a class");
    in_class_ = c != ']';
    Copy(1);
    return base::OkStatus();
  }

  Status OutsideClass(char c) {
    if (c == '[') {
      in_class_ = true;
      Copy(rest_.starts_with("[^") ? 2 : 1);
      if (rest_.starts_with(']')) Copy(1);  // the first character of a class is never its end
      return base::OkStatus();
    }
    if (rest_.starts_with("(?")) return Group();
    // Only ?+, *+ and ++ are possessive in Ruby.
    if (rest_.starts_with("}+")) return Unsupported("+ after an interval");
    Copy(1);
    return base::OkStatus();
  }

  Status Group() {
    static constexpr std::string_view kSameGroups[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?>", "(?-i:"};
    for (const std::string_view group : kSameGroups) {
      if (!rest_.starts_with(group)) continue;
      Copy(group.size());
      return base::OkStatus();
    }
    // At the start both engines apply it to the whole expression.
    if (rest_.starts_with("(?i)") && out_.empty()) {
      Copy(4);
      return base::OkStatus();
    }
    return Unsupported(fmt::format("a group \"{}\"", rest_.substr(0, 3)));
  }

  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

Result<std::string> OnigurumaToPcre2(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace longspan::text
