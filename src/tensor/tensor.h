// An owned tensor: a buffer and the dense view of it.
#pragma once

#include <utility>

#include "tensor/buffer.h"
#include "tensor/view.h"

namespace longspan::tensor {

// Move-only. Empty by default.
class Tensor {
 public:
  Tensor() = default;
  // `view` must lie in `buffer`.
  Tensor(Buffer buffer, View view) : buffer_(std::move(buffer)), view_(view) {}

  const View& view() const { return view_; }
  int64_t bytes() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  View view_;
};

}  // namespace longspan::tensor
