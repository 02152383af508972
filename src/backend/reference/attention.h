// How much scratch attention takes.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// Doubles for every thread.
int64_t AttentionScratchDoubles(int64_t head_dim);
int64_t LatentAttentionScratchDoubles(int64_t rank, int64_t rope_dim);

}  // namespace longspan::backend::reference
