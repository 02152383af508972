// Names of things that plans speak of.
#pragma once

#include <cstdint>

#include "base/strong_id.h"

namespace longspan::plan {

// A sequence (one prompt and what is generated after it); never reused within a run.
using SequenceId = base::StrongId<struct SequenceTag, int64_t>;
// Position of a step plan in the log: 1, 2, 3, ...
using PlanNumber = base::StrongId<struct PlanTag, uint64_t>;
// A group of ranks between two restarts; frames of an older epoch are dropped.
using Epoch = base::StrongId<struct EpochTag, uint32_t>;

}  // namespace longspan::plan
