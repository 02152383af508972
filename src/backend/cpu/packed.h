// Weights in the kernels' layout (kernel_table.h).
#pragma once

#include <memory>

#include "backend/cpu/kernel_table.h"
#include "base/result.h"
#include "ops/packed_weight.h"
#include "tensor/buffer.h"

namespace longspan::backend::cpu {

class CpuPackedWeight : public ops::PackedWeight {
 public:
  CpuPackedWeight(int64_t rows, int64_t columns, tensor::DType compute, tensor::Buffer words)
      : PackedWeight(rows, columns), compute_(compute), words_(std::move(words)) {}

  int64_t bytes() const override { return words_.bytes(); }
  bool is_table() const override { return true; }
  tensor::DType compute() const { return compute_; }
  int64_t panels() const { return (rows() + kPanelColumns - 1) / kPanelColumns; }
  // 32-bit words per output column.
  int64_t steps() const { return Steps(columns(), compute_); }
  const uint32_t* panel(int64_t index) const {
    return static_cast<const uint32_t*>(words_.data()) + index * steps() * kPanelColumns;
  }

  static int64_t Steps(int64_t columns, tensor::DType compute) {
    return compute == tensor::DType::kBf16 ? (columns + 1) / 2 : columns;
  }

 private:
  tensor::DType compute_;
  tensor::Buffer words_;
};

// Stacks, converts (rounding to nearest) and packs. Refuses types that it lacks.
base::Result<std::unique_ptr<ops::PackedWeight>> PackWeight(const ops::PackRequest& request);

}  // namespace longspan::backend::cpu
