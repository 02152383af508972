// The operators of expressions, with Python's meaning. All throw JinjaError for operands that
// Python refuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/context.h"

namespace longspan::text {

// left + right and so on, for + - * / // % **.
Value Arithmetic(JinjaContext& context, std::string_view operation, const Value& left,
                 const Value& right);
Value Negate(const Value& value);
// left == right and so on, for == != < <= > >= in, "not in".
bool Compare(JinjaContext& context, std::string_view comparison, const Value& left,
             const Value& right);

// `format % arguments` of Python's str.
std::string FormatPercent(JinjaContext& context, std::string_view format,
                          const std::vector<Value>& arguments);

}  // namespace longspan::text
