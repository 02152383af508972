// How the lengths of a prompt's chunks are chosen.
#pragma once

#include <cstdint>
#include <limits>

namespace longspan::engine {

struct ChunkPolicy {
  enum class Kind {
    kFixed,      // at multiples of one size (plan/chunk_plan.h)
    kPlanned,    // what makes the pipeline done soonest (plan/chunk_planner.h)
    kQuadratic,  // as SGLang does it (plan/quadratic_chunks.h)
  };
  Kind kind = Kind::kFixed;
  // Of the quadratic one.
  double smoothing = 0.75;
  int64_t context_length = std::numeric_limits<int64_t>::max();  // of the engine
};

}  // namespace longspan::engine
