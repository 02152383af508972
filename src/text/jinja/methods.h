// Attributes and methods of values: what Python's getattr finds on them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/context.h"

namespace longspan::text {

// The attribute, a method bound to the value among them; none when Python has none, either. Throws
// JinjaError for attributes that Python has and this engine lacks.
std::optional<Value> FindAttribute(const Value& value, std::string_view name);

// str.replace; a negative count replaces all.
std::string ReplaceText(JinjaContext& context, std::string_view text, std::string_view old_part,
                        std::string_view new_part, Integer count);

}  // namespace longspan::text
