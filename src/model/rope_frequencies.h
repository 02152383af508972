// The inverse frequencies of rotary position embedding, and what else depends on its scaling.
#pragma once

#include <vector>

#include "spec/model.h"

namespace longspan::model {

// One per pair of `dim` coordinates: theta^(-2i/dim), scaled as the spec says. The power is taken
// in double and rounded once: an error of one f32 step grows with the position and costs 5e-5 of
// the logits at 16,000 tokens.
std::vector<float> RopeInverseFrequencies(const spec::RopeSpec& rope, int dim);

// The factor on all cosines and sines: 1 without yarn.
float RopeAmplitude(const spec::RopeSpec& rope);

// The coordinates of a head that a model rotates.
int RotatedDimensions(const spec::ModelSpec& model);

// The scale of latent attention's scores for heads of `head_dim`: head_dim^-1/2, with yarn times
// the square of m(mscale_all_dim), as DeepSeek's models have it.
double LatentScoreScale(const spec::RopeSpec& rope, int head_dim);

}  // namespace longspan::model
