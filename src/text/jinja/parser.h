// From the source of a template to its statements, by the grammar of Jinja2 3.1.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace longspan::text {

// Blocks and brackets nest at most this deep, and expressions have at most this many levels of
// operands, so that recursion over the parsed form is safe.
constexpr int kMaxTemplateDepth = 150;
constexpr int kMaxExpressionHeight = 250;

// Throws JinjaError with the line for errors of syntax, and for statements, filters and tests that
// do not exist here.
Statements ParseTemplate(std::string_view source);

}  // namespace longspan::text
