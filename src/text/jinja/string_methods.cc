#include "text/jinja/string_methods.h"

#include <algorithm>
#include <utility>

#include <unicode/uchar.h>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/items.h"
#include "text/jinja/methods.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

Value StripWith(JinjaContext& context, const std::string& text, const Arguments& arguments,
                std::string_view name, bool left, bool right) {
  const BoundArguments bound(name, arguments, {"chars"});
  const auto characters = bound.Text(0);
  if (characters.has_value() && characters->size() > 1000)
    FailUnimplemented("'{}' of more than 1000 bytes of characters", name);
  context.CountBytes(text.size() * (characters.has_value() ? characters->size() : 1));
  std::string_view rest = text;
  if (left) rest = StripLeft(rest, characters);
  if (right) rest = StripRight(rest, characters);
  return context.String(std::string(rest));
}

Value Strip(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return StripWith(context, text, arguments, "strip", true, true);
}
Value LStrip(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return StripWith(context, text, arguments, "lstrip", true, false);
}
Value RStrip(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return StripWith(context, text, arguments, "rstrip", false, true);
}

using Parts = std::vector<std::string_view>;

// The first (from_right: last) `most` white-space separated words, and the rest as one.
Parts SplitAtSpace(std::string_view text, Integer most, bool from_right) {
  Parts parts;
  const auto strip = from_right ? StripRight : StripLeft;
  for (text = strip(text, std::nullopt); !text.empty(); text = strip(text, std::nullopt)) {
    if (most >= 0 && static_cast<Integer>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t cut = from_right ? text.size() : 0;
    if (from_right) {
      while (cut > 0 && TrailingSpace(text.substr(0, cut)) == 0) --cut;
      parts.push_back(text.substr(cut));
      text = text.substr(0, cut);
    } else {
      while (cut < text.size() && !IsPythonSpace(CodePointAt(text, cut)))
        cut += CharacterBytes(text, cut);
      parts.push_back(text.substr(0, cut));
      text.remove_prefix(cut);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts SplitAt(std::string_view text, std::string_view separator, Integer most) {
  Parts parts;
  size_t start = 0;
  while (most < 0 || static_cast<Integer>(parts.size()) < most) {
    const size_t found = FindText(text, separator, start);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(start, found - start));
    start = found + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

Parts SplitAtFromRight(std::string_view text, std::string_view separator, Integer most) {
  Parts parts;
  while (most < 0 || static_cast<Integer>(parts.size()) < most) {
    const size_t found = text.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value Strings(JinjaContext& context, const Parts& parts) {
  context.CountBytes(parts.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(context.String(std::string(part)));
  return context.List(std::move(items));
}

Value SplitWith(JinjaContext& context, const std::string& text, const Arguments& arguments,
                bool from_right) {
  const BoundArguments bound(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"});
  const Integer most = bound.Number(1).value_or(-1);
  const auto separator = bound.Text(0);
  if (!separator.has_value()) {
    context.CountBytes(text.size() * 4);
    return Strings(context, SplitAtSpace(text, most, from_right));
  }
  if (separator->empty()) FailInvalid("'split' needs a separator that is not empty");
  // Searching backwards may look at every position with the whole separator.
  context.CountBytes(from_right ? text.size() * separator->size() : text.size());
  return Strings(context, from_right ? SplitAtFromRight(text, *separator, most)
                                     : SplitAt(text, *separator, most));
}

Value Split(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return SplitWith(context, text, arguments, false);
}
Value RSplit(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return SplitWith(context, text, arguments, true);
}

bool HasAffix(std::string_view text, std::string_view affix, bool at_end) {
  if (affix.size() > text.size()) return false;
  return text.substr(at_end ? text.size() - affix.size() : 0, affix.size()) == affix;
}

Value AffixTest(JinjaContext& context, const std::string& text, const Arguments& arguments,
                bool at_end) {
  const BoundArguments bound(at_end ? "endswith" : "startswith", arguments, {"affix"}, 1);
  const Value& affix = bound.At(0);
  context.CountBytes(affix.Weight());
  if (!affix.Is(ValueKind::kTuple))
    return Value::Bool(
        HasAffix(text, RequireString(affix, "the argument of 'startswith'"), at_end));
  const auto& choices = affix.sequence().items;
  return Value::Bool(std::any_of(choices.begin(), choices.end(), [&](const Value& choice) {
    return HasAffix(text, RequireString(choice, "the argument of 'startswith'"), at_end);
  }));
}

Value StartsWith(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return AffixTest(context, text, arguments, false);
}
Value EndsWith(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  return AffixTest(context, text, arguments, true);
}

Value RemovePrefix(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const auto affix = BoundArguments("removeprefix", arguments, {"prefix"}, 1).Text(0).value_or("");
  return context.String(text.substr(HasAffix(text, affix, false) ? affix.size() : 0));
}
Value RemoveSuffix(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const auto affix = BoundArguments("removesuffix", arguments, {"suffix"}, 1).Text(0).value_or("");
  return context.String(
      text.substr(0, text.size() - (HasAffix(text, affix, true) ? affix.size() : 0)));
}

Value Replace(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  return context.String(ReplaceText(context, text, bound.Text(0).value_or(""),
                                    bound.Text(1).value_or(""), bound.Number(2).value_or(-1)));
}

Value Upper(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("upper", arguments, {});
  return context.String(ToUpper(text));
}
Value Lower(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("lower", arguments, {});
  return context.String(ToLower(text));
}
Value Capitalize(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("capitalize", arguments, {});
  return context.String(ToTitleFirst(text));
}

// The number of the character at a byte offset, or -1.
Value CharacterIndex(JinjaContext& context, const std::string& text, size_t offset) {
  context.CountBytes(text.size());
  if (offset == std::string::npos) return Value::Int(-1);
  return Value::Int(
      static_cast<Integer>(CountCharacters(std::string_view(text).substr(0, offset))));
}

Value Find(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const auto part = BoundArguments("find", arguments, {"sub"}, 1).Text(0).value_or("");
  return CharacterIndex(context, text, FindText(text, part));
}

Value RFind(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const auto part = BoundArguments("rfind", arguments, {"sub"}, 1).Text(0).value_or("");
  context.CountBytes(text.size() * part.size());
  return CharacterIndex(context, text, text.rfind(part));
}

Value Index(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const auto part = BoundArguments("index", arguments, {"sub"}, 1).Text(0).value_or("");
  const size_t found = FindText(text, part);
  if (found == std::string::npos) FailInvalid("'index' does not find its text");
  return CharacterIndex(context, text, found);
}

Value Count(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const auto part = BoundArguments("count", arguments, {"sub"}, 1).Text(0).value_or("");
  context.CountBytes(text.size());
  if (part.empty()) return Value::Int(static_cast<Integer>(CountCharacters(text)) + 1);
  return Value::Int(static_cast<Integer>(SplitAt(text, part, -1).size() - 1));
}

Value Join(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"}, 1);
  RequireDefined(bound.At(0));
  std::string joined;
  bool first = true;
  for (const Value& item : Iterate(context, bound.At(0))) {
    if (!first) joined += text;
    joined += RequireString(item, "an item of 'join'");
    context.CheckSize(1, joined.size());
    first = false;
  }
  return context.String(std::move(joined));
}

Value SplitLinesMethod(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {});
  context.CountBytes(text.size());
  return Strings(context, SplitLines(text));
}

bool IsEvery(const std::string& text, bool (*holds)(char32_t)) {
  for (size_t i = 0; i < text.size(); i += CharacterBytes(text, i))
    if (!holds(CodePointAt(text, i))) return false;
  return !text.empty();
}

Value IsDigit(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("isdigit", arguments, {});
  context.CountBytes(text.size());
  return Value::Bool(IsEvery(text, [](char32_t c) {
    const int type = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
    return type == U_NT_DECIMAL || type == U_NT_DIGIT;
  }));
}
Value IsAlpha(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("isalpha", arguments, {});
  context.CountBytes(text.size());
  return Value::Bool(
      IsEvery(text, [](char32_t c) { return u_isalpha(static_cast<UChar32>(c)) != 0; }));
}
Value IsSpace(JinjaContext& context, const std::string& text, const Arguments& arguments) {
  const BoundArguments bound("isspace", arguments, {});
  context.CountBytes(text.size());
  return Value::Bool(IsEvery(text, IsPythonSpace));
}

constexpr std::pair<std::string_view, StringMethod> kMethods[] = {
    {"capitalize", Capitalize},
    {"count", Count},
    {"endswith", EndsWith},
    {"find", Find},
    {"index", Index},
    {"isalpha", IsAlpha},
    {"isdigit", IsDigit},
    {"isspace", IsSpace},
    {"join", Join},
    {"lower", Lower},
    {"lstrip", LStrip},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"replace", Replace},
    {"rfind", RFind},
    {"rsplit", RSplit},
    {"rstrip", RStrip},
    {"split", Split},
    {"splitlines", SplitLinesMethod},
    {"startswith", StartsWith},
    {"strip", Strip},
    {"upper", Upper},
};

}  // namespace

StringMethod FindStringMethod(std::string_view name) {
  for (const auto& [known, method] : kMethods)
    if (known == name) return method;
  return nullptr;
}

std::string ReplaceText(JinjaContext& context, std::string_view text, std::string_view old_part,
                        std::string_view new_part, Integer count) {
  std::string out;
  size_t start = 0;
  context.CountBytes(text.size());
  for (Integer done = 0; count < 0 || done < count; ++done) {
    if (old_part.empty()) {
      // Python puts the new text before every character and at the end.
      out += new_part;
      if (start == text.size()) return out;
      const size_t bytes = CharacterBytes(text, start);
      out += text.substr(start, bytes);
      start += bytes;
    } else {
      const size_t found = FindText(text, old_part, start);
      if (found == std::string_view::npos) break;
      out += text.substr(start, found - start);
      out += new_part;
      start = found + old_part.size();
    }
    context.CheckSize(1, out.size());
  }
  out += text.substr(start);
  return out;
}

}  // namespace longspan::text
