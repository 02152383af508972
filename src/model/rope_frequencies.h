// The inverse frequencies of rotary position embedding.
#pragma once

#include <vector>

#include "spec/model.h"

namespace longspan::model {

// One per pair of `dim` coordinates: theta^(-2i/dim), scaled as the spec says. The power is taken
// in double and rounded once: an error of one f32 step grows with the position and costs 5e-5 of
// the logits at 16,000 tokens.
std::vector<float> RopeInverseFrequencies(const spec::RopeSpec& rope, int dim);

}  // namespace longspan::model
