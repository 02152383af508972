// How much scratch index selection takes.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// Doubles for every thread.
int64_t IndexSelectScratchDoubles(int64_t heads, int64_t dim, int64_t top_k);

}  // namespace longspan::backend::reference
