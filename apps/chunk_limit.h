// How long a chunk may be at most where no flag says it.
#pragma once

#include <cstdint>

#include "apps/engine_setup.h"

namespace longspan::apps {

// In tokens. Fixed chunks, and the first ones of the quadratic policy, have this length: 512, on
// GPUs 8,192. So do planned ones on one stage, where longer ones only make others wait. With
// several stages a plan weighs that, and the limit is what a step's rows take of the memory, but no
// more than 4,096, on GPUs 16,384.
int64_t DefaultChunkTokens(const EngineFlags& flags, const EngineSetup& setup);

}  // namespace longspan::apps
