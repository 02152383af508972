// How the lengths of a prompt's chunks are chosen.
#pragma once

namespace longspan::engine {

struct ChunkPolicy {
  enum class Kind {
    kFixed,      // at multiples of one size (plan/chunk_plan.h)
    kPlanned,    // what makes the pipeline done soonest (plan/chunk_planner.h)
    kQuadratic,  // as SGLang does it (plan/quadratic_chunks.h)
  };
  Kind kind = Kind::kFixed;
  double smoothing = 0.75;  // of the quadratic one
};

}  // namespace longspan::engine
