// What ranks send each other, counted and by the formulas of docs/parallelism.md.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/pipeline_report.h"
#include "spec/mesh.h"
#include "spec/model.h"

namespace longspan::apps {

// Bytes that a rank receives per token of a prompt, in all layers, as the mean over the ranks of a
// stage. What sampled tokens cost is counted and stands in no formula.
struct AxisVolume {
  std::string axis;  // "pp", "cp", "tp", "ep"
  double counted = 0;
  double formula = 0;
};

struct ExchangeShape {
  spec::Mesh mesh;
  int loops = 1;              // virtual stages of a rank
  int64_t element = 0;        // bytes of a value
  int64_t cached = 0;         // and of one in the cache
  bool shares_cache = false;  // each context-parallel rank has some pages
  int64_t step_rows = 0;      // of most steps
  int64_t prompt_length = 0;
};

// Of the axes that are longer than one rank.
std::vector<AxisVolume> ExchangeVolumes(const spec::ModelSpec& model, const ExchangeShape& shape,
                                        const PipelineReport::Traffic& traffic);

// {"pp": {"counted", "formula"}, ...}
nlohmann::ordered_json ToJson(const std::vector<AxisVolume>& volumes);

// A table for people, or nothing where there is one rank.
std::string ToText(const std::vector<AxisVolume>& volumes);

}  // namespace longspan::apps
