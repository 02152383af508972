// What some backends offer besides: steps that repeat are queued with one call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/execution_context.h"

namespace longspan::ops {

// Of one queue, and used by its thread.
class StepRecorder {
 public:
  virtual ~StepRecorder() = default;
  // Runs `calls`, which does nothing but call ops, with arguments that `key` determines. What they
  // queue may be kept and, at a later call with that key, be queued again without running `calls`.
  virtual void Run(uint64_t key, const std::function<void()>& calls) = 0;
};

// Implemented beside ops::Backend by a backend that has it.
class RecordingBackend {
 public:
  virtual ~RecordingBackend() = default;
  // `queue` must outlive it.
  virtual std::unique_ptr<StepRecorder> CreateRecorder(tensor::Queue& queue) const = 0;
};

}  // namespace longspan::ops
