// Counts of rows by rank.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace longspan::model {

inline int64_t Sum(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// For blocks of rows with so many elements each.
inline std::vector<int64_t> Times(std::span<const int64_t> counts, int64_t elements) {
  std::vector<int64_t> products;
  for (const int64_t count : counts) products.push_back(count * elements);
  return products;
}

}  // namespace longspan::model
