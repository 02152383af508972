// What is inside of values: items, attributes, slices, and walking over them, with Python's
// meaning. All throw JinjaError for values that Python refuses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/context.h"

namespace longspan::text {

// value[key]; undefined when there is none. value.name prefers methods, value["name"] items.
Value GetItem(JinjaContext& context, const Value& value, const Value& key);
Value GetAttribute(JinjaContext& context, const Value& value, const std::string& name);
// value[start:stop:step]; null bounds are absent.
Value GetSlice(JinjaContext& context, const Value& value, const Value* start, const Value* stop,
               const Value* step);

// What a for loop walks over. Uses up generators.
std::vector<Value> Iterate(JinjaContext& context, const Value& value);
// len(value).
Integer Length(JinjaContext& context, const Value& value);

// Fails for undefined values, with the reason.
void RequireDefined(const Value& value);
// The value as text or number of its type, or an error that names `what`.
const std::string& RequireString(const Value& value, std::string_view what);
Integer RequireInteger(const Value& value, std::string_view what);

}  // namespace longspan::text
