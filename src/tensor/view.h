// Non-owning views of tensors, up to four dimensions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace longspan::tensor {

constexpr int kMaxRank = 4;

// Where a tensor lies and how. The innermost dimension is contiguous; outer strides are in elements
// and may be larger than the product of the inner sizes (a column slice of a wider matrix). Does
// not own the data and does not know on which device it is: only the backend that made it may
// follow the pointer. Element offsets are 64-bit throughout: a long context's tables exceed 2^31
// elements.
template <typename Void>
class BasicView {
 public:
  BasicView() = default;

  // A densely packed tensor.
  BasicView(Void* data, DType dtype, std::initializer_list<int64_t> sizes)
      : data_(data), dtype_(dtype), rank_(static_cast<int>(sizes.size())) {
    LONGSPAN_CHECK(rank_ <= kMaxRank, "a view has at most {} dimensions", kMaxRank);
    int i = 0;
    for (const int64_t size : sizes) sizes_[i++] = size;
    int64_t stride = 1;
    for (i = rank_ - 1; i >= 0; --i) {
      strides_[i] = stride;
      stride *= sizes_[i];
    }
  }

  // A writable view is also a read-only one.
  template <typename Other>
  requires(std::is_same_v<Void, const void>&& std::is_same_v<Other, void>)
      BasicView(const BasicView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data_(other.raw()), dtype_(other.dtype()), rank_(other.rank()) {
    for (int i = 0; i < rank_; ++i) {
      sizes_[i] = other.size(i);
      strides_[i] = other.stride(i);
    }
  }

  Void* raw() const { return data_; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  bool empty() const { return data_ == nullptr; }
  int64_t size(int dim) const { return sizes_[dim]; }
  int64_t stride(int dim) const { return strides_[dim]; }
  int64_t elements() const {
    int64_t count = rank_ == 0 ? 0 : 1;
    for (int i = 0; i < rank_; ++i) count *= sizes_[i];
    return count;
  }
  int64_t bytes() const { return elements() * SizeOf(dtype_); }
  bool contiguous() const {
    int64_t stride = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      if (strides_[i] != stride && sizes_[i] != 1) return false;
      stride *= sizes_[i];
    }
    return true;
  }

  // The elements as T; the dtype must be T's.
  template <typename T>
  auto* data() const {
    LONGSPAN_CHECK(DTypeOf<T>::kValue == dtype_, "the view holds {}", DTypeName(dtype_));
    using Pointer = std::conditional_t<std::is_const_v<Void>, const T*, T*>;
    return static_cast<Pointer>(data_);
  }
  // Element [i, 0, ...].
  template <typename T>
  auto* row(int64_t i) const {
    return data<T>() + i * strides_[0];
  }

  // Rows [begin, begin + count) of dimension 0.
  BasicView Rows(int64_t begin, int64_t count) const {
    LONGSPAN_CHECK(begin >= 0 && count >= 0 && begin + count <= sizes_[0], "rows [{}, {}) of {}",
                   begin, begin + count, sizes_[0]);
    BasicView view = *this;
    view.data_ = Offset(begin * strides_[0]);
    view.sizes_[0] = count;
    return view;
  }
  // Columns [begin, begin + count) of the innermost dimension.
  BasicView Columns(int64_t begin, int64_t count) const {
    LONGSPAN_CHECK(begin >= 0 && count >= 0 && begin + count <= sizes_[rank_ - 1],
                   "columns [{}, {}) of {}", begin, begin + count, sizes_[rank_ - 1]);
    BasicView view = *this;
    view.data_ = Offset(begin);
    view.sizes_[rank_ - 1] = count;
    return view;
  }
  // The innermost dimension of size outer x inner cut in two: [..., outer, inner].
  BasicView SplitColumns(int64_t outer, int64_t inner) const {
    LONGSPAN_CHECK(rank_ < kMaxRank && sizes_[rank_ - 1] == outer * inner,
                   "{} columns are not {} x {}", sizes_[rank_ - 1], outer, inner);
    BasicView view = *this;
    view.sizes_[rank_ - 1] = outer;
    view.strides_[rank_ - 1] = inner;
    view.sizes_[rank_] = inner;
    view.strides_[rank_] = 1;
    ++view.rank_;
    return view;
  }

 private:
  Void* Offset(int64_t elements) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return static_cast<Byte*>(data_) + elements * SizeOf(dtype_);
  }

  Void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> sizes_{};
  std::array<int64_t, kMaxRank> strides_{};
};

using View = BasicView<void>;
using ConstView = BasicView<const void>;

}  // namespace longspan::tensor
