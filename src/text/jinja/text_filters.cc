// Filters that make text.

#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/filter_sets.h"
#include "text/jinja/items.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

// What filters of text see: strings as they are, other values printed.
std::string SoftText(JinjaContext& context, const Value& value) {
  if (value.is_markup()) RequireString(value, "what is filtered");
  return ToText(context, value);
}

Value Upper(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("upper", arguments, {});
  return context.String(ToUpper(SoftText(context, value)));
}

Value Lower(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("lower", arguments, {});
  return context.String(ToLower(SoftText(context, value)));
}

Value Capitalize(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("capitalize", arguments, {});
  return context.String(ToTitleFirst(SoftText(context, value)));
}

Value Title(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("title", arguments, {});
  const std::string text = SoftText(context, value);
  std::string out;
  size_t start = 0;
  // Words end at white space and at - ( { [ <.
  const auto separates = [&](size_t i) {
    return IsPythonSpace(CodePointAt(text, i)) ||
           std::string_view("-({[<").find(text[i]) != std::string_view::npos;
  };
  while (start < text.size()) {
    const bool separator = separates(start);
    size_t end = start;
    while (end < text.size() && separates(end) == separator) end += CharacterBytes(text, end);
    const std::string_view word = std::string_view(text).substr(start, end - start);
    const size_t first = CharacterBytes(word, 0);
    out += ToUpper(word.substr(0, first)) + ToLower(word.substr(first));
    start = end;
  }
  return context.String(std::move(out));
}

Value Trim(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("trim", arguments, {"chars"});
  const auto characters = bound.Text(0);
  const std::string text = SoftText(context, value);
  context.CountBytes(text.size() * std::max<size_t>(1, characters.value_or("").size()));
  return context.String(std::string(StripRight(StripLeft(text, characters), characters)));
}

Value String(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("string", arguments, {});
  return value.is_string() ? value : context.String(ToText(context, value));
}

Value Replace(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  return context.String(ReplaceText(context, ToText(context, value), ToText(context, bound.At(0)),
                                    ToText(context, bound.At(1)), bound.Number(2).value_or(-1)));
}

Value Indent(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
  std::string indent(4, ' ');
  if (bound.Has(0) && bound.At(0).is_string()) {
    indent = RequireString(bound.At(0), "the argument 'width' of 'indent'");
  } else if (const auto width = bound.Number(0)) {
    context.CheckSize(*width, 1);
    indent.assign(static_cast<size_t>(std::max<Integer>(*width, 0)), ' ');
  }
  // As Jinja2: a line break at the end is kept, since one more is added before lines are split.
  const std::string text = RequireString(value, "what is indented") + "\n";
  context.CountBytes(text.size() * sizeof(std::string_view));
  std::string out;
  bool first = true;
  for (const std::string_view line : SplitLines(text)) {
    if (!first) out += '\n';
    if (first ? bound.Flag(1) : bound.Flag(2) || !line.empty()) out += indent;
    out += line;
    context.CheckSize(1, out.size());
    first = false;
  }
  return context.String(std::move(out));
}

Value Safe(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("safe", arguments, {});
  return Value::Markup(ToText(context, value));
}

Value Escape(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("escape", arguments, {});
  if (value.is_markup()) return value;
  std::string out;
  for (const char c : ToText(context, value)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  context.CheckSize(1, out.size());
  return Value::Markup(std::move(out));
}

Value Format(JinjaContext& context, const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty()) FailUnimplemented("'format' with named arguments");
  return context.String(FormatPercent(context, SoftText(context, value), arguments.positional));
}

void SetSeparators(const Value& separators, JsonFormat* format) {
  if (!separators.is_sequence() || separators.sequence().items.size() != 2)
    FailInvalid("the argument 'separators' of 'tojson' is not a pair");
  const auto& pair = separators.sequence().items;
  format->item_separator = RequireString(pair[0], "a separator of 'tojson'");
  format->key_separator = RequireString(pair[1], "a separator of 'tojson'");
}

Value Json(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("tojson", arguments,
                             {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonFormat format;
  format.ensure_ascii = bound.Flag(0);
  format.sort_keys = bound.Flag(3);
  if (bound.Has(1) && bound.At(1).is_string()) {
    format.indent = bound.Text(1).value_or("");
  } else if (const auto width = bound.Number(1)) {
    context.CheckSize(*width, 1);
    format.indent = std::string(static_cast<size_t>(std::max<Integer>(*width, 0)), ' ');
  }
  if (format.indent.has_value()) format.item_separator.pop_back();  // lines end without a space
  if (bound.Has(2) && !bound.At(2).is_none()) SetSeparators(bound.At(2), &format);
  return context.String(ToJson(context, value, format));
}

constexpr JinjaFilter kFilters[] = {
    {"capitalize", Capitalize}, {"e", Escape},    {"escape", Escape},   {"format", Format},
    {"indent", Indent},         {"lower", Lower}, {"replace", Replace}, {"safe", Safe},
    {"string", String},         {"title", Title}, {"tojson", Json},     {"trim", Trim},
    {"upper", Upper},
};

}  // namespace

std::span<const JinjaFilter> TextFilters() { return kFilters; }

}  // namespace longspan::text
