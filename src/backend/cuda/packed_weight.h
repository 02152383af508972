// Weight matrices as the CUDA backend's products read them: row-major in device memory.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.h"
#include "ops/packed_weight.h"
#include "tensor/buffer.h"

namespace longspan::backend::cuda {

// A CUtensorMap: what the copy engine needs to know of a matrix.
struct alignas(128) TensorMap {
  std::array<std::byte, 128> bytes{};
};

// A box of a bf16 weight's map: so many rows (output features) and columns, zeros outside.
constexpr int kMapRows = 128;
constexpr int kMapColumns = 64;

// W [rows, columns] in the compute type (f32 or bf16), densely packed, on the device that was
// current when it was made.
class CudaWeight : public ops::PackedWeight {
 public:
  CudaWeight(int64_t rows, int64_t columns, tensor::DType dtype, tensor::Buffer data);

  int64_t bytes() const override { return data_.bytes(); }
  tensor::DType dtype() const { return dtype_; }
  const void* data() const { return data_.data(); }
  void* data() { return data_.data(); }

  // With boxes in the order that SwizzledOffset (wgmma.cuh) says. Only where has_map(): bf16 with a
  // multiple of eight columns.
  bool has_map() const { return has_map_; }
  const TensorMap& map() const { return map_; }

 private:
  tensor::DType dtype_;
  tensor::Buffer data_;
  bool has_map_ = false;
  TensorMap map_;
};

inline const CudaWeight& AsCuda(const ops::PackedWeight& weight) {
  return static_cast<const CudaWeight&>(weight);
}

// A weight whose memory the caller fills through data().
base::Result<std::unique_ptr<CudaWeight>> AllocateWeight(int64_t rows, int64_t columns,
                                                         tensor::DType dtype);

// Stacks the request's host matrices, converted to the compute type, in device memory. Returns when
// they are there.
base::Result<std::unique_ptr<ops::PackedWeight>> PackWeight(const ops::PackRequest& request);

// The same of matrices that are made on the device.
base::Result<std::unique_ptr<ops::PackedWeight>> GenerateWeight(
    const ops::GenerateRequest& request);

}  // namespace longspan::backend::cuda
