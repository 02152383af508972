// A value or the Status that tells why there is none.
#pragma once

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace longspan::base {

// Holds exactly one of a T and a Status that is not ok. Move-only when T is.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose, so that `return value;` and `return InvalidArgument(...);` both work.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : value_(std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {
    LONGSPAN_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // The value; it is a programmer's mistake to ask when !ok().
  T& value() & {
    CheckOk();
    return *value_;
  }
  const T& value() const& {
    CheckOk();
    return *value_;
  }
  T&& value() && {
    CheckOk();
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void CheckOk() const { LONGSPAN_CHECK(value_.has_value(), "{}", status_.message()); }

  std::optional<T> value_;
  Status status_;
};

}  // namespace longspan::base

#define LONGSPAN_CONCAT_INNER(a, b) a##b
#define LONGSPAN_CONCAT(a, b) LONGSPAN_CONCAT_INNER(a, b)

// LONGSPAN_ASSIGN_OR_RETURN(auto x, F()): x = the value of F(), or returns its Status.
#define LONGSPAN_ASSIGN_OR_RETURN(declaration, expression) \
  LONGSPAN_ASSIGN_OR_RETURN_INNER(LONGSPAN_CONCAT(result_, __LINE__), declaration, expression)
#define LONGSPAN_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                            \
  if (!result.ok()) return result.status();                              \
  declaration = std::move(result).value()
