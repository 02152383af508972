// Views of tensors whose number of dimensions is known at run time only.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace longspan::checkpoint {

// A dense tensor of one to four dimensions.
inline tensor::ConstView DenseView(const void* data, tensor::DType dtype,
                                   std::span<const int64_t> shape) {
  LONGSPAN_CHECK(!shape.empty() && shape.size() <= tensor::kMaxRank, "{} dimensions", shape.size());
  switch (shape.size()) {
    case 1:
      return {data, dtype, {shape[0]}};
    case 2:
      return {data, dtype, {shape[0], shape[1]}};
    case 3:
      return {data, dtype, {shape[0], shape[1], shape[2]}};
    default:
      return {data, dtype, {shape[0], shape[1], shape[2], shape[3]}};
  }
}

}  // namespace longspan::checkpoint
