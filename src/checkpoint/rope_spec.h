// What a config.json says about rotary positions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "checkpoint/json_fields.h"
#include "spec/model.h"

namespace longspan::checkpoint {

// transformers 4 writes `rope_theta` and `rope_scaling` (with `type` in its older releases),
// transformers 5 `rope_parameters` with everything inside; where both are there, the newer counts.
// `context_length` is what yarn stretches where the section does not name the original one.
base::Result<spec::RopeSpec> ReadRope(const JsonFields& fields, std::string_view architecture,
                                      int64_t context_length);

}  // namespace longspan::checkpoint
