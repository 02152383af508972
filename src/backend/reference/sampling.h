// How much scratch sampling takes.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// Doubles for every thread.
int64_t SamplingScratchDoubles(int64_t vocab_size);

}  // namespace longspan::backend::reference
