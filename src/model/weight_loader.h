// From stored tensors to what a backend computes with.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/weight_source.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace longspan::model {

// A stored matrix [rows, columns] by its full name.
struct NamedMatrix {
  std::string name;
  int64_t rows = 0;
};

// Rows [row_begin, row_begin + rows) of a stored matrix, or the transpose of them.
struct MatrixPart {
  int64_t row_begin = 0;
  int64_t rows = 0;
  bool transposed = false;
};

// Reads, packs and releases: the stored bytes of a tensor are dropped as soon as the backend has
// its own copy. One thread.
class WeightLoader {
 public:
  WeightLoader(checkpoint::WeightSource& source, const ops::Backend& backend, tensor::Queue& queue,
               tensor::DType compute, bool one_form = false)
      : source_(source), backend_(backend), queue_(queue), compute_(compute), one_form_(one_form) {}

  // Blocks compute in one form whatever the step, and need no weights for another.
  bool one_form() const { return one_form_; }

  // The matrices stacked in order into one, for products in the compute type.
  base::Result<std::unique_ptr<ops::PackedWeight>> Matrix(std::span<const NamedMatrix> parts,
                                                          int64_t columns);
  base::Result<std::unique_ptr<ops::PackedWeight>> Matrix(std::initializer_list<NamedMatrix> parts,
                                                          int64_t columns) {
    return Matrix(std::span(parts.begin(), parts.size()), columns);
  }

  // Parts of one stored matrix [rows, columns], each a weight of its own, in order.
  base::Result<std::vector<std::unique_ptr<ops::PackedWeight>>> Parts(
      const NamedMatrix& matrix, int64_t columns, std::span<const MatrixPart> parts);

  // Vectors in f32 (norm weights, biases), stacked in order.
  base::Result<tensor::Tensor> Vector(std::initializer_list<NamedMatrix> parts);

  // A matrix whose rows are looked up: in bf16 where it is stored so, else in f32; both exact.
  base::Result<tensor::Tensor> Table(const std::string& name, int64_t rows, int64_t columns);

  // A vector of our own making, in f32.
  base::Result<tensor::Tensor> Constant(std::span<const float> values);

  // Device memory taken so far.
  int64_t bytes() const { return bytes_; }

 private:
  base::Result<tensor::Tensor> Store(std::span<const std::byte> host, tensor::DType dtype,
                                     std::initializer_list<int64_t> sizes);

  checkpoint::WeightSource& source_;
  const ops::Backend& backend_;
  tensor::Queue& queue_;
  tensor::DType compute_;
  bool one_form_;
  int64_t bytes_ = 0;
};

}  // namespace longspan::model
