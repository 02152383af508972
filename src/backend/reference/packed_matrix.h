// Weights of the reference backend: f32, dense, row by row.
#pragma once

#include <utility>

#include "base/check.h"
#include "ops/packed_weight.h"
#include "tensor/buffer.h"

namespace longspan::backend::reference {

class PackedMatrix : public ops::PackedWeight {
 public:
  PackedMatrix(int64_t rows, int64_t columns, tensor::Buffer buffer)
      : PackedWeight(rows, columns), buffer_(std::move(buffer)) {}

  int64_t bytes() const override { return buffer_.bytes(); }
  bool is_table() const override { return true; }
  float* row(int64_t i) const { return static_cast<float*>(buffer_.data()) + i * columns(); }

  // The weight must be one that this backend packed.
  static const PackedMatrix& From(const ops::PackedWeight* weight) {
    const auto* matrix = dynamic_cast<const PackedMatrix*>(weight);
    LONGSPAN_CHECK(matrix != nullptr, "the weight was packed by another backend");
    return *matrix;
  }

 private:
  tensor::Buffer buffer_;
};

}  // namespace longspan::backend::reference
