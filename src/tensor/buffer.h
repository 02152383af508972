// Owned device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>

#include "base/result.h"
#include "tensor/view.h"

namespace longspan::tensor {

// Move-only bytes with the function that frees them. 64-byte aligned or better.
class Buffer {
 public:
  using Free = std::function<void(void* data, int64_t bytes)>;

  Buffer() = default;
  Buffer(void* data, int64_t bytes, Free free)
      : data_(data), bytes_(bytes), free_(std::move(free)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) free_(data_, bytes_);
  }

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // A dense view at `offset` bytes; it must lie inside the buffer.
  View ViewAt(int64_t offset, DType dtype, std::initializer_list<int64_t> sizes) const {
    const View view(static_cast<std::byte*>(data_) + offset, dtype, sizes);
    LONGSPAN_CHECK(offset >= 0 && offset + view.bytes() <= bytes_, "{} bytes at {} of {}",
                   view.bytes(), offset, bytes_);
    return view;
  }
  View AsView(DType dtype, std::initializer_list<int64_t> sizes) const {
    return ViewAt(0, dtype, sizes);
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_;
};

// Zeroed pages of host memory, not yet resident: large tables cost only what is touched. Fails with
// a sentence that says how much was asked for.
base::Result<Buffer> AllocateHost(int64_t bytes);

}  // namespace longspan::tensor
