// Integers that mean different things and do not convert into each other.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace longspan::base {

// A named integer: `struct FooTag; using FooId = StrongId<FooTag, int64_t>;`. A plain value.
template <typename Tag, typename T>
struct StrongId {
  using ValueType = T;
  T value = 0;

  // clang-tidy 14 takes the 0 that results are compared with for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

}  // namespace longspan::base

template <typename Tag, typename T>
struct std::hash<longspan::base::StrongId<Tag, T>> {
  size_t operator()(const longspan::base::StrongId<Tag, T>& id) const noexcept {
    return std::hash<T>()(id.value);
  }
};
