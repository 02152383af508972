#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace longspan::base {

void CheckFailed(const char* file, int line, std::string_view expression,
                 const std::string& message) {
  fmt::print(stderr, "{}:{}: check failed: {}: {}\n", file, line, expression, message);
  std::abort();
}

}  // namespace longspan::base
