// How much scratch the router takes.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// Doubles for every thread.
int64_t RouterScratchDoubles(int64_t experts);

}  // namespace longspan::backend::reference
