#include "apps/simulated_trace.h"

#include "apps/trace_events.h"
#include "apps/trace_file.h"
#include "apps/trace_summary.h"
#include "apps/trace_svg.h"

namespace longspan::apps {

base::Result<std::string> DrawSimulation(const sim::SimulationResult& result,
                                         const spec::Mesh& mesh, int width) {
  TraceEvents events(mesh.pp);
  std::string text = events.Begin();
  for (engine::StepRecord step : result.steps) {
    for (int stage = 0; stage < mesh.pp; ++stage) {
      const auto lane = static_cast<size_t>(mesh.rank_of(stage, 0));
      step.stages[static_cast<size_t>(stage)] = step.stages[lane];
      step.leader.reports[static_cast<size_t>(stage)] = step.leader.reports[lane];
    }
    step.stages.resize(static_cast<size_t>(mesh.pp));
    step.leader.reports.resize(static_cast<size_t>(mesh.pp));
    events.Append(step, text);
  }
  text += TraceEvents::kEnd;
  LONGSPAN_ASSIGN_OR_RETURN(const Trace trace, ParseTrace(text));
  return DrawTrace(trace, Summarise(trace, WindowOf(trace)), width);
}

}  // namespace longspan::apps
