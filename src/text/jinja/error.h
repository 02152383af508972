// How the template engine fails inside: an exception that jinja_template.cc turns into a Status.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/status.h"

namespace longspan::text {

// Thrown in jinja_*.cc only and caught in JinjaTemplate::Parse and Render: nearly every step of an
// evaluation can fail, and the engine is the one place where passing that by hand hides the logic.
struct JinjaError {
  base::StatusCode code;
  std::string message;
  int line = 0;              // of the template; 0: the line being evaluated
  bool by_template = false;  // raise_exception: the message is the template author's sentence
};

// The template or the request is wrong.
template <typename... Args>
[[noreturn]] void FailInvalid(fmt::format_string<Args...> format, Args&&... args) {
  throw JinjaError{base::StatusCode::kInvalidArgument,
                   fmt::format(format, std::forward<Args>(args)...)};
}
// Jinja2 has it, this engine does not.
template <typename... Args>
[[noreturn]] void FailUnimplemented(fmt::format_string<Args...> format, Args&&... args) {
  throw JinjaError{base::StatusCode::kUnimplemented,
                   fmt::format(format, std::forward<Args>(args)...)};
}
// A bound of jinja_context.h is exceeded.
template <typename... Args>
[[noreturn]] void FailExhausted(fmt::format_string<Args...> format, Args&&... args) {
  throw JinjaError{base::StatusCode::kResourceExhausted,
                   fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace longspan::text
