// Weights stored in eight bits: e4m3 (float8 e4m3fn of the OCP's formats) with one float32 scale
// per block of a matrix, as DeepSeek-V3 and others are published.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "checkpoint/weight_source.h"

namespace longspan::checkpoint {

// How a matrix is cut; the last blocks of a row or column may be partial.
struct Fp8Blocks {
  int64_t rows = 128;
  int64_t columns = 128;
};

// `stored`, but e4m3 matrices come out as F32: the value times its block's entry in the F32 matrix
// NAME_scale_inv of [ceil(rows / block rows), ceil(columns / block columns)], rounded once. Other
// tensors pass as they are. Without `blocks` an e4m3 tensor is refused (Unimplemented), as is one
// that is no matrix, and scales of another type.
std::unique_ptr<WeightSource> DequantizeFp8(std::unique_ptr<WeightSource> stored,
                                            std::optional<Fp8Blocks> blocks);

}  // namespace longspan::checkpoint
