// Whether tensor-parallel ranks can divide weights that are stored in blocks.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "spec/mesh.h"
#include "spec/model.h"

namespace longspan::plan {

// Eight-bit weights have one scale per block of a matrix, of so many rows and columns. A rank's
// part of a matrix that is larger than a block must be whole blocks. Refuses a --tp-size for which
// that is not so, names the weight, and the largest --tp-size below it that does. Experts whose
// columns an --ep-size leaves whole are not looked at.
base::Status CheckBlockShares(const spec::ModelSpec& model, const spec::Mesh& mesh, int64_t block);

}  // namespace longspan::plan
