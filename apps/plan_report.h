// What `longspan plan` prints.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/layout_search.h"

namespace longspan::apps {

struct PlanReport {
  std::string model_path;
  sim::SearchRequest request;
  double target_ttft_s = 0;  // 0: none
  size_t most_layouts = 10;  // that are printed
  sim::SearchResult found;
};

// The command that serves with a layout.
std::string ServeCommand(const PlanReport& report, const sim::Layout& layout);

nlohmann::ordered_json ToJson(const PlanReport& report);
// A table; the command of the best one below it.
std::string ToText(const PlanReport& report);
// Why the best one is the best: where its time goes, its layers, what the others lose, and what was
// refused.
std::string Explain(const PlanReport& report);

}  // namespace longspan::apps
