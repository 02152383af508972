// Weight matrices as the CUDA backend's products read them: row-major in device memory.
#pragma once

#include <memory>

#include "base/result.h"
#include "ops/packed_weight.h"
#include "tensor/buffer.h"

namespace longspan::backend::cuda {

// W [rows, columns] in the compute type (f32 or bf16), densely packed, on the device that was
// current when it was made.
class CudaWeight : public ops::PackedWeight {
 public:
  CudaWeight(int64_t rows, int64_t columns, tensor::DType dtype, tensor::Buffer data)
      : PackedWeight(rows, columns), dtype_(dtype), data_(std::move(data)) {}

  int64_t bytes() const override { return data_.bytes(); }
  tensor::DType dtype() const { return dtype_; }
  const void* data() const { return data_.data(); }

 private:
  tensor::DType dtype_;
  tensor::Buffer data_;
};

inline const CudaWeight& AsCuda(const ops::PackedWeight& weight) {
  return static_cast<const CudaWeight&>(weight);
}

// Stacks the request's host matrices, converted to the compute type, in device memory.
base::Result<std::unique_ptr<ops::PackedWeight>> PackWeight(const ops::PackRequest& request);

}  // namespace longspan::backend::cuda
