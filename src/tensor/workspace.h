// Scratch memory of a step: taken at load, handed out and taken back in stack order, never
// allocated inside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "tensor/buffer.h"

namespace longspan::tensor {

// A stack over one buffer. Not thread-safe: it belongs to the thread that queues the ops.
class Workspace {
 public:
  Workspace() = default;
  explicit Workspace(Buffer buffer) : buffer_(std::move(buffer)) {}

  // What one op or one layer takes; given back when the scope ends. Scopes nest.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Scope() { workspace_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    // 64-byte aligned, contents undefined. Running out is a programmer's mistake: the bound that
    // sized the workspace was wrong.
    View Take(DType dtype, std::initializer_list<int64_t> sizes) {
      const View shape(nullptr, dtype, sizes);
      const int64_t offset = workspace_.used_;
      workspace_.used_ += PaddedBytes(shape.bytes());
      workspace_.peak_ = std::max(workspace_.peak_, workspace_.used_);
      LONGSPAN_CHECK(workspace_.used_ <= workspace_.buffer_.bytes(),
                     "the workspace has {} bytes of {} needed", workspace_.buffer_.bytes(),
                     workspace_.used_);
      return workspace_.buffer_.ViewAt(offset, dtype, sizes);
    }

   private:
    Workspace& workspace_;
    int64_t mark_;
  };

  // What a Take of so many bytes adds.
  static constexpr int64_t PaddedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  int64_t bytes() const { return buffer_.bytes(); }
  // The most that was in use at once.
  int64_t peak_bytes() const { return peak_; }

 private:
  Buffer buffer_;
  int64_t used_ = 0;
  int64_t peak_ = 0;
};

}  // namespace longspan::tensor
