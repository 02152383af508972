// The methods of str that templates may call.
#pragma once

#include <string_view>

#include "text/jinja/context.h"

namespace longspan::text {

using StringMethod = Value (*)(JinjaContext& context, const std::string& text,
                               const Arguments& arguments);

// Null when this engine has no such method of str.
StringMethod FindStringMethod(std::string_view name);

}  // namespace longspan::text
