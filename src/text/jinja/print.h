// How values become text: str() and repr() of Python, json.dumps as Hugging Face's tojson calls it.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/context.h"

namespace longspan::text {

// str(value); undefined is "". Values without a stable printed form (generators, functions, views)
// are errors.
std::string ToText(JinjaContext& context, const Value& value);
// repr(value): strings in quotes.
std::string ToRepr(JinjaContext& context, const Value& value);

struct JsonFormat {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; without it all is on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps(value, ...) of Python.
std::string ToJson(JinjaContext& context, const Value& value, const JsonFormat& format);

}  // namespace longspan::text
