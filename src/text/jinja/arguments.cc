#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/items.h"

namespace longspan::text {

BoundArguments::BoundArguments(std::string_view callee, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters, size_t required)
    : callee_(callee), parameters_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters_.size())
    FailInvalid("'{}' takes at most {} arguments, not {}", callee, parameters_.size(),
                arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) FailInvalid("'{}' has no parameter '{}'", callee, name);
    const Value*& slot = values_[static_cast<size_t>(found - parameters_.begin())];
    if (slot != nullptr) FailInvalid("'{}' got its parameter '{}' twice", callee, name);
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr) FailInvalid("'{}' needs its argument '{}'", callee, parameters_[i]);
}

std::string BoundArguments::What(size_t index) const {
  return fmt::format("the argument '{}' of '{}'", parameters_[index], callee_);
}

std::optional<std::string_view> BoundArguments::Text(size_t index) const {
  if (!Has(index) || At(index).is_none()) return std::nullopt;
  return RequireString(At(index), What(index));
}

std::optional<Integer> BoundArguments::Number(size_t index) const {
  if (!Has(index) || At(index).is_none()) return std::nullopt;
  return RequireInteger(At(index), What(index));
}

bool BoundArguments::Flag(size_t index) const { return Has(index) && At(index).Truthy(); }

}  // namespace longspan::text
