// How filters, tests, methods and functions receive what they are called with.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/context.h"

namespace longspan::text {

// The arguments of one call, matched with the names of parameters as Python does. Refers to the
// Arguments.
class BoundArguments {
 public:
  // Throws JinjaError for too many arguments, unknown or repeated names, and when one of the first
  // `required` is missing. `callee` is what messages call the function.
  BoundArguments(std::string_view callee, const Arguments& arguments,
                 std::initializer_list<std::string_view> parameters, size_t required = 0);

  // Null when not given.
  const Value* Get(size_t index) const { return values_[index]; }
  const Value& At(size_t index) const { return *values_[index]; }
  bool Has(size_t index) const { return values_[index] != nullptr; }

  std::optional<std::string_view> Text(size_t index) const;  // none when absent or None
  std::optional<Integer> Number(size_t index) const;         // likewise
  bool Flag(size_t index) const;                             // false when absent

 private:
  std::string What(size_t index) const;

  std::string_view callee_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

}  // namespace longspan::text
