// Checks for programmer's mistakes: they print where and why, and abort. Never for bad input.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace longspan::base {

// Prints "file:line: check failed: expression: message" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, std::string_view expression,
                              const std::string& message);

}  // namespace longspan::base

// LONGSPAN_CHECK(condition, "format", arguments...), in every build.
#define LONGSPAN_CHECK(condition, ...)                                                           \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::longspan::base::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// The same where it would cost time in a kernel: only with LONGSPAN_ASSERTIONS (presets dev, asan,
// tsan).
#ifdef LONGSPAN_ASSERTIONS
#define LONGSPAN_DCHECK(condition, ...) LONGSPAN_CHECK(condition, __VA_ARGS__)
#else
#define LONGSPAN_DCHECK(condition, ...) \
  do {                                  \
  } while (false)
#endif
