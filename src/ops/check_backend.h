// What the backends check alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "ops/packed_weight.h"
#include "tensor/dtype.h"

namespace longspan::ops {

// Refuses compute and cache types other than f32 and bf16, in the name of a backend that has both.
base::Status CheckFloatTypes(std::string_view backend, tensor::DType compute,
                             tensor::DType kv_cache);

// Rows of the matrix that the parts of a request make together. Refuses requests without parts,
// parts that cannot be stacked, and types of theirs that no backend packs.
base::Result<int64_t> StackedRows(std::string_view backend, const PackRequest& request);

}  // namespace longspan::ops
