// Weight matrices in a backend's own layout.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace longspan::ops {

// A matrix W [rows = output features, columns = input features] that only the backend which made it
// can read. Immutable, so any number of threads and layers may share it.
class PackedWeight {
 public:
  PackedWeight(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {}
  virtual ~PackedWeight() = default;
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Device memory that it takes.
  virtual int64_t bytes() const = 0;
  // Whether the embedding op can look its rows up, so that a head can be the embedding too.
  virtual bool is_table() const { return false; }

 private:
  int64_t rows_;
  int64_t columns_;
};

// What to pack: host matrices [rows_i, columns] in bf16, f16 or f32, stacked in order into one
// matrix (for example q, k and v), and the type in which the products are computed (f32 or bf16).
struct PackRequest {
  std::span<const tensor::ConstView> parts;
  tensor::DType compute;
};

// Matrices that are made instead of read, stacked in order: element i of a part, in row-major
// order, is drawn from its table by base/counter_table.h.
struct GeneratedMatrix {
  int64_t rows = 0;
  uint64_t key = 0;
  std::span<const tensor::Bf16> table;
};
struct GenerateRequest {
  std::span<const GeneratedMatrix> parts;
  int64_t columns = 0;
  tensor::DType compute;
};

}  // namespace longspan::ops
