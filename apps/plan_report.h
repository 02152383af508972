// What `longspan plan` prints.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "sim/layout_search.h"

namespace longspan::apps {

struct PlanReport {
  std::string model_path;
  sim::SearchRequest request;
  double target_ttft_s = 0;  // 0: none
  size_t most_layouts = 10;  // that are printed
  sim::SearchResult found;
};

// The command that serves with a layout, as a shell takes it. Without a model path it is for the
// embedded model.
std::string ServeCommand(const PlanReport& report, const sim::Layout& layout);
// Whether that command would run, or the sentence with which it would be refused.
base::Status CheckCommand(const PlanReport& report, const sim::Layout& layout);

nlohmann::ordered_json ToJson(const PlanReport& report);
// A table; below it what was refused, and the command of the best one.
std::string ToText(const PlanReport& report);
// Why the best one is the best: where its time goes, its layers, what its ranks receive, and
// what the others lose.
std::string Explain(const PlanReport& report);

}  // namespace longspan::apps
