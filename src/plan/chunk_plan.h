// Into which chunks a prompt is cut.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longspan::plan {

// Chunks of a fixed size, cut at multiples of it so that the result of a chunk does not depend on
// where an earlier one was cut short.
struct FixedChunks {
  int64_t size = 512;  // tokens

  // Where the chunk that begins at `begin` ends: at most `end`, and at most `budget` tokens on.
  int64_t NextEnd(int64_t begin, int64_t end, int64_t budget) const {
    return std::min({end, (begin / size + 1) * size, begin + budget});
  }
};

}  // namespace longspan::plan
