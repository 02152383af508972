// The reference backend: the executable specification of every op.
#pragma once

#include "ops/backend.h"

namespace longspan::backend::reference {

// Plain loops on the host with sums in double; activations, weights and cache in f32. All ops are
// there. Its queue is a tensor::ThreadPool. A row's result is the same bits for any number of
// threads and whichever rows come with it, on every x86-64 machine. Lives as long as the program.
const ops::Backend& ReferenceBackend();

}  // namespace longspan::backend::reference
