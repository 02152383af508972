// Doubles for every thread of a loop, from the workspace.
#pragma once

#include <cstdint>

#include "tensor/thread_pool.h"
#include "tensor/workspace.h"

namespace longspan::backend::reference {

inline tensor::ThreadPool& Threads(tensor::ExecutionContext& context) {
  return static_cast<tensor::ThreadPool&>(context.queue);
}

// Lives as long as the op that takes it.
class ThreadScratch {
 public:
  ThreadScratch(tensor::ExecutionContext& context, int64_t doubles)
      : scope_(context.workspace),
        stride_(Stride(doubles)),
        data_(static_cast<double*>(
            scope_.Take(tensor::DType::kU8, {BytesFor(Threads(context).threads(), doubles)})
                .raw())) {}

  // What a scratch of so many doubles a thread takes.
  static int64_t BytesFor(int threads, int64_t doubles) {
    return threads * Stride(doubles) * int64_t{sizeof(double)};
  }

  double* of(int thread) const { return data_ + thread * stride_; }

 private:
  // Threads write to cache lines of their own.
  static int64_t Stride(int64_t doubles) { return (doubles + 7) / 8 * 8; }

  tensor::Workspace::Scope scope_;
  int64_t stride_;
  double* data_;
};

}  // namespace longspan::backend::reference
