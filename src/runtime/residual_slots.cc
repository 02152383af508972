#include "runtime/residual_slots.h"

namespace longspan::runtime {

base::Result<std::unique_ptr<ResidualSlots>> ResidualSlots::Create(const ops::Backend& backend,
                                                                   int slots, int64_t max_rows,
                                                                   int64_t hidden,
                                                                   tensor::DType dtype,
                                                                   bool staged) {
  auto ring = std::make_unique<ResidualSlots>();
  ring->backend_ = &backend;
  const int64_t bytes = max_rows * hidden * tensor::SizeOf(dtype);
  for (int i = 0; i < slots; ++i) {
    LONGSPAN_ASSIGN_OR_RETURN(auto buffer, backend.Allocate(bytes));
    const auto view = buffer.AsView(dtype, {max_rows, hidden});
    Slot& slot = ring->slots_.emplace_back();
    slot.tensor = tensor::Tensor(std::move(buffer), view);
    if (staged && !backend.is_on_host()) {
      LONGSPAN_ASSIGN_OR_RETURN(slot.staging, backend.AllocateStaging(bytes));
    }
  }
  return ring;
}

std::span<std::byte> ResidualSlots::LinkBytes(const comm::Link& link, int slot,
                                              int64_t rows) const {
  const tensor::View view = Rows(slot, rows);
  void* const data = IsStaged(link) ? slots_[slot].staging.data() : view.raw();
  return {static_cast<std::byte*>(data), static_cast<size_t>(view.bytes())};
}

base::Status ResidualSlots::Store(const comm::Link& link, tensor::Queue& queue, int slot,
                                  int64_t rows) const {
  if (!IsStaged(link)) return base::OkStatus();
  return backend_->StartUpload(queue, LinkBytes(link, slot, rows), Rows(slot, rows));
}

base::Status ResidualSlots::Fetch(const comm::Link& link, tensor::Queue& queue, int slot,
                                  int64_t rows) const {
  if (!IsStaged(link)) return base::OkStatus();
  return backend_->StartDownload(queue, Rows(slot, rows), LinkBytes(link, slot, rows));
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
