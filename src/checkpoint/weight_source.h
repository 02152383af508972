// Where a model's weights come from, by their names on the Hub.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tensor/view.h"

namespace longspan::checkpoint {

// Element i, in row-major order, is drawn from the table by base/counter_table.h.
struct CounterTensor {
  uint64_t key = 0;
  std::span<const tensor::Bf16> table;  // of base::kCounterTableSize values, the source's
};

// A part of a stored matrix: what a rank has of one that is divided over several.
struct MatrixWindow {
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t column_begin = 0;
  int64_t columns = 0;

  tensor::ConstView Of(const tensor::ConstView& matrix) const {
    return matrix.Rows(row_begin, rows).Columns(column_begin, columns);
  }
};

// Hands out whole tensors of a checkpoint, or parts of matrices, in host memory. A source belongs
// to one thread at a time; every rank opens its own and reads only what it needs.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  virtual bool Has(std::string_view name) const = 0;

  // The tensor as it is stored: dense, BF16, F16 or F32 (or, from files, F8_E4M3, which
  // DequantizeFp8 turns into F32), aligned to its elements, of one to four dimensions (a stored
  // scalar counts as [1]). NotFound: no such tensor. InvalidArgument: another shape than the one
  // expected. Unimplemented: an element type that is no weight's. DataLoss: a broken file. The
  // message names the tensor and the file. The view is valid until Release(name) or the source's
  // end.
  virtual base::Result<tensor::ConstView> Read(std::string_view name,
                                               std::span<const int64_t> shape) = 0;

  // A part of a matrix, as Read would give it, but not always dense; nothing else of it is read
  // where that can be helped. `shape` is the whole matrix's.
  virtual base::Result<tensor::ConstView> ReadWindow(std::string_view name,
                                                     std::span<const int64_t> shape,
                                                     const MatrixWindow& window) {
    LONGSPAN_ASSIGN_OR_RETURN(const tensor::ConstView matrix, Read(name, shape));
    return window.Of(matrix);
  }

  // How the tensor's values come about, where they are a function of their index: a device may make
  // them itself instead of reading them.
  virtual std::optional<CounterTensor> Counter(std::string_view /*name*/,
                                               std::span<const int64_t> /*shape*/) const {
    return std::nullopt;
  }

  // The caller has packed the tensor: its memory is given back. Views of it become invalid (it may
  // be read again). A name that was not read is left alone.
  virtual void Release(std::string_view name) = 0;

  // The bytes of all tensors handed out so far; one that was read twice counts twice.
  virtual int64_t bytes_read() const = 0;
};

}  // namespace longspan::checkpoint
