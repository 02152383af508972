// The Gantt chart of a traced run.
#pragma once

#include <string>

#include "apps/trace_file.h"
#include "apps/trace_summary.h"

namespace longspan::apps {

// An SVG picture, `width` pixels wide: a row for the leader's work and one for each rank, with a
// bar for what each plan computed there (a colour for each sequence, every second chunk lighter,
// labelled where there is room: sequence and chunk, the chunk, or where it begins), hatched while
// it waited for input, white while it had no plan, and thin below it the input on its way. The axis
// is in milliseconds. Each bar has a tooltip. What is narrower than a part of a pixel is drawn
// together, so that the picture of a long run stays small.
std::string DrawTrace(const Trace& trace, const TraceSummary& summary, int width);

}  // namespace longspan::apps
