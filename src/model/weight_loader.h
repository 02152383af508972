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
#include "plan/expert_share.h"
#include "plan/tensor_share.h"
#include "tensor/tensor.h"

namespace longspan::model {

// A stored matrix or vector by its full name. What is divided over tensor-parallel ranks is stored
// as `pieces` times as many rows, of which a rank reads those of its piece.
struct NamedMatrix {
  std::string name;
  int64_t rows = 0;  // that the rank has
  int pieces = 1;
};

// The columns of stored matrices, which may be divided in the same way.
struct MatrixColumns {
  MatrixColumns(int64_t columns, int cut_in = 1)  // NOLINT(google-explicit-constructor)
      : count(columns), pieces(cut_in) {}

  int64_t count;  // that the rank has
  int pieces;
};

// Rows [row_begin, row_begin + rows) of what a rank has of a stored matrix, or the transpose of
// them.
struct MatrixPart {
  int64_t row_begin = 0;
  int64_t rows = 0;
  bool transposed = false;
};

struct LoadOptions {
  tensor::DType compute = tensor::DType::kF32;
  // Blocks compute in one form whatever the step, and need no weights for another.
  bool one_form = false;
  // What rows keep in the cache has a product of its own, so that it can be on its way to other
  // ranks while the rest is computed.
  bool kept_first = false;
  plan::TensorShare share;  // which pieces are this rank's
  plan::ExpertShare experts;
};

// Reads, packs and releases: the stored bytes of a tensor are dropped as soon as the backend has
// its own copy. One thread.
class WeightLoader {
 public:
  WeightLoader(checkpoint::WeightSource& source, const ops::Backend& backend, tensor::Queue& queue,
               const LoadOptions& options)
      : source_(source), backend_(backend), queue_(queue), options_(options) {}

  bool one_form() const { return options_.one_form; }
  bool kept_first() const { return options_.kept_first; }
  // How many ranks divide what is divided among themselves.
  int ranks() const { return options_.share.size; }
  // Which experts it has.
  const plan::ExpertShare& experts() const { return options_.experts; }

  // The matrices stacked in order into one, for products in the compute type.
  base::Result<std::unique_ptr<ops::PackedWeight>> Matrix(std::span<const NamedMatrix> parts,
                                                          const MatrixColumns& columns);
  base::Result<std::unique_ptr<ops::PackedWeight>> Matrix(std::initializer_list<NamedMatrix> parts,
                                                          const MatrixColumns& columns) {
    return Matrix(std::span(parts.begin(), parts.size()), columns);
  }

  // Parts of what the rank has of one stored matrix [rows, columns], each a weight of its own, in
  // order.
  base::Result<std::vector<std::unique_ptr<ops::PackedWeight>>> Parts(
      const NamedMatrix& matrix, int64_t columns, std::span<const MatrixPart> parts);

  // Vectors in f32 (norm weights, biases), stacked in order.
  base::Result<tensor::Tensor> Vector(std::initializer_list<NamedMatrix> parts);

  // The bias of a product that ranks sum up, added once: the first rank has it, others none.
  base::Result<tensor::Tensor> SummedBias(const NamedMatrix& bias);

  // Whether nothing of a matrix is rounded when it is packed for products.
  base::Result<bool> IsPackedExactly(const NamedMatrix& matrix, const MatrixColumns& columns);

  // A matrix whose rows are looked up: in bf16 where it is stored so, else in f32; both exact. A
  // divided one ends with a row of zeros, for what other ranks have.
  base::Result<tensor::Tensor> Table(const NamedMatrix& matrix, int64_t columns);

  // A vector of our own making, in f32.
  base::Result<tensor::Tensor> Constant(std::span<const float> values);

  // Device memory taken so far.
  int64_t bytes() const { return bytes_; }

 private:
  base::Result<tensor::ConstView> Read(const NamedMatrix& matrix, const MatrixColumns& columns);
  base::Result<tensor::Tensor> Store(std::span<const std::byte> host, tensor::DType dtype,
                                     std::initializer_list<int64_t> sizes);

  checkpoint::WeightSource& source_;
  const ops::Backend& backend_;
  tensor::Queue& queue_;
  const LoadOptions options_;
  int64_t bytes_ = 0;
};

}  // namespace longspan::model
