// What a simulation serves.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longspan::sim {

struct SimRequest {
  double at_s = 0;            // when it comes
  int64_t prompt_tokens = 0;  // at least 1
  int64_t output_tokens = 1;
  // Requests of one positive prefix id begin with the same tokens, so many of them.
  int64_t prefix_id = 0;
  int64_t prefix_tokens = 0;
};

// In the order of arrival.
using Workload = std::vector<SimRequest>;

// A workload file: {"requests": [{"at_s": 0, "prompt_tokens": 131072, "output_tokens": 1,
// "prefix_id": 7, "prefix_tokens": 4096}, ...]}, where prompt_tokens alone has no default (0, 1 and
// no prefix are the others'). Sorted by arrival. InvalidArgument, with `where` and the request's
// number, for values that make no sense.
base::Result<Workload> ParseWorkload(std::string_view json, const std::string& where);

}  // namespace longspan::sim
