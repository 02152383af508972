// Weights for speed measurements: made from a seed, without a checkpoint.
#pragma once

#include <cstdint>
#include <memory>

#include "checkpoint/weight_source.h"

namespace longspan::checkpoint {

// A source in which every name exists, in BF16, with the shape that is asked for. A value depends
// on the seed, the tensor's name and shape and the element's index only, so ranks agree without
// talking. Matrices are roughly normal with standard deviation 1 / sqrt(columns), which keeps
// activations of order one through many layers; norms ("...norm.weight") are near one, biases near
// zero.
std::unique_ptr<WeightSource> MakeDummySource(uint64_t seed);

}  // namespace longspan::checkpoint
