// How much scratch attention takes.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// Doubles for every thread.
int64_t AttentionScratchDoubles(int64_t head_dim);

}  // namespace longspan::backend::reference
