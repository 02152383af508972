// How much scratch the products take.
#pragma once

#include <cstdint>

namespace longspan::backend::reference {

// Doubles for every thread, for products over so many columns.
int64_t LinearScratchDoubles(int64_t columns);

}  // namespace longspan::backend::reference
