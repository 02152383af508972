#include "runtime/residual_slots.h"

namespace longspan::runtime {

base::Result<std::unique_ptr<ResidualSlots>> ResidualSlots::Create(const ops::Backend& backend,
                                                                   int slots, int64_t max_rows,
                                                                   int64_t hidden,
                                                                   tensor::DType dtype) {
  auto ring = std::make_unique<ResidualSlots>();
  for (int i = 0; i < slots; ++i) {
    LONGSPAN_ASSIGN_OR_RETURN(auto buffer,
                              backend.Allocate(max_rows * hidden * tensor::SizeOf(dtype)));
    const auto view = buffer.AsView(dtype, {max_rows, hidden});
    ring->slots_.push_back({.tensor = tensor::Tensor(std::move(buffer), view)});
  }
  return ring;
}

base::Result<int> ResidualSlots::Acquire() {
  std::unique_lock lock(mutex_);
  const int index = next_;
  Slot& slot = slots_[index];
  released_.wait(lock, [&] { return cancelled_ || !slot.in_use; });
  if (cancelled_) return base::Aborted("the stage is ending");
  next_ = (next_ + 1) % static_cast<int>(slots_.size());
  slot.in_use = true;
  const comm::Transfer sent = std::move(slot.sent);
  slot.sent = {};
  lock.unlock();
  // Cancelling goes with closing the link, which ends this wait.
  LONGSPAN_RETURN_IF_ERROR(sent.Wait());
  return index;
}

void ResidualSlots::Release(int slot, comm::Transfer sent) {
  {
    const std::lock_guard lock(mutex_);
    slots_[slot].in_use = false;
    slots_[slot].sent = std::move(sent);
  }
  released_.notify_one();
}

void ResidualSlots::Cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  released_.notify_all();
}

}  // namespace longspan::runtime
