// The buffers that the residual stream passes through: received into, computed in place, sent from.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/link.h"
#include "comm/transfer.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace longspan::runtime {

// A ring of buffers, used in turn by consecutive plans: while one is computed in, the next is
// received into and the last one is being sent. Acquire is called by one thread, Release by
// another, both in plan order.
class ResidualSlots {
 public:
  // `slots`: how many plans may be between the posting of their receive and the end of their send.
  // `staged`: whether a link that does not take device memory will read or write them.
  static base::Result<std::unique_ptr<ResidualSlots>> Create(const ops::Backend& backend, int slots,
                                                             int64_t max_rows, int64_t hidden,
                                                             tensor::DType dtype,
                                                             bool staged = true);

  // Waits for the next buffer of the ring to be free: computed, and its send done. Aborted after
  // Cancel(); otherwise the error of that send.
  base::Result<int> Acquire();

  // The bytes of these rows where that link may receive and send them: the rows themselves, or on a
  // device of its own memory, for a link that does not take that, a copy on the host (see Fetch and
  // Store).
  std::span<std::byte> LinkBytes(const comm::Link& link, int slot, int64_t rows) const;

  // Copy the first `rows` rows of a slot from, and to, where the link has them; nothing to do where
  // it has the rows themselves. In the order of the queue, which must have been synchronised before
  // a link sends.
  base::Status Store(const comm::Link& link, tensor::Queue& queue, int slot, int64_t rows) const;
  base::Status Fetch(const comm::Link& link, tensor::Queue& queue, int slot, int64_t rows) const;

  // The first `rows` rows of a slot.
  tensor::View Rows(int slot, int64_t rows) const {
    return slots_[slot].tensor.view().Rows(0, rows);
  }

  // The slot is free once `sent` is done.
  void Release(int slot, comm::Transfer sent);

  // Wakes a waiting Acquire, now and from now on.
  void Cancel();

 private:
  struct Slot {
    tensor::Tensor tensor;
    tensor::Buffer staging;  // on the host; empty where the tensor is there itself
    bool in_use = false;
    comm::Transfer sent;
  };

  bool IsStaged(const comm::Link& link) const {
    return !link.takes_device_memory() && !backend_->is_on_host();
  }

  const ops::Backend* backend_ = nullptr;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable released_;
  int next_ = 0;
  bool cancelled_ = false;
};

}  // namespace longspan::runtime
