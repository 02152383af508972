// The Gantt chart of a simulated run.
#pragma once

#include <string>

#include "base/result.h"
#include "sim/simulation.h"

namespace longspan::apps {

// As DrawTrace: one row for each stage, since its lanes do the same.
base::Result<std::string> DrawSimulation(const sim::SimulationResult& result,
                                         const spec::Mesh& mesh, int width);

}  // namespace longspan::apps
