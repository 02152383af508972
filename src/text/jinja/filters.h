// The filters and tests of templates, by name.
#pragma once

#include <string_view>

#include "text/jinja/context.h"

namespace longspan::text {

// `value|name(arguments)`.
struct JinjaFilter {
  std::string_view name;
  Value (*apply)(JinjaContext& context, const Value& value, const Arguments& arguments);
};

// `value is name(arguments)`.
struct JinjaTest {
  std::string_view name;
  bool (*holds)(JinjaContext& context, const Value& value, const Arguments& arguments);
};

// Null when there is none of this name.
const JinjaFilter* FindFilter(std::string_view name);
const JinjaTest* FindTest(std::string_view name);
// The same, but an error: unimplemented for names that Jinja2 has, invalid for others.
const JinjaFilter& RequireFilter(std::string_view name);
const JinjaTest& RequireTest(std::string_view name);

}  // namespace longspan::text
