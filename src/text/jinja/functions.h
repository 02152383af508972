// The functions that every template can call.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/context.h"

namespace longspan::text {

// range, dict, namespace, raise_exception and strftime_now; none for other names. Throws JinjaError
// for functions of Jinja2 that this engine lacks.
std::optional<Value> FindFunction(std::string_view name);

}  // namespace longspan::text
