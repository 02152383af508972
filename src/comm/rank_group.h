// What several ranks do together: the collective operations of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/status.h"
#include "tensor/view.h"

namespace longspan::comm {

// A collective operation that this rank has posted. Move-only. Buffers are the operation's until
// Wait has returned, whatever it returned; the destructor waits.
class [[nodiscard]] Collective {
 public:
  Collective() = default;  // done and ok
  // `finish` sleeps until this rank's part is done, and tells how. Called once.
  explicit Collective(std::function<base::Status()> finish) : finish_(std::move(finish)) {}
  Collective(Collective&& other) noexcept : finish_(std::exchange(other.finish_, {})) {}
  Collective& operator=(Collective&& other) noexcept {
    (void)Wait();
    finish_ = std::exchange(other.finish_, {});
    return *this;
  }
  ~Collective() { (void)Wait(); }

  // Sleeps until this rank's part is done: what it gets is there. A second call is ok at once.
  base::Status Wait() { return finish_ ? std::exchange(finish_, {})() : base::OkStatus(); }

 private:
  std::function<base::Status()> finish_;
};

// One rank's end of a group of `size` ranks, numbered from 0. All ranks of a group post the same
// operations in the same order, with sizes that agree, and wait for them in the same order; any
// number may be under way, and the caller computes meanwhile. One thread at a time posts and waits.
//
// Sums are taken in the order of the ranks, in f32, and rounded once: every rank gets the same
// bits, and the same ones in every run.
//
// A group in the memory of a device is made for a queue: its operations take effect in that queue's
// order, and Wait puts the queue behind them without waiting itself; what then fails comes out of
// Queue::Synchronize. Others are handed host memory that no kernel writes any more.
//
// When a rank closes its end, dies, or posts another size than the others, Wait ends for everyone
// who needs something of it, with Unavailable or DataLoss; the first error closes this end too, so
// that it reaches all of them. A rank that is silent holds the others up, as with a link: whoever
// must not wait for ever closes the group.
class RankGroup {
 public:
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;

  virtual ~RankGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // `all` holds the blocks of all ranks in order, of sizes[rank] bytes each; this rank's own is
  // filled before. Afterwards all of them are.
  virtual Collective AllGather(Bytes all, std::span<const size_t> sizes) = 0;

  // x, dense, f32 or bf16, is cut into blocks of counts[rank] elements. Afterwards this rank's
  // block is the sum of all ranks' ones; the rest of x is unspecified.
  virtual Collective ReduceScatter(const tensor::View& x, std::span<const int64_t> counts) = 0;

  // Afterwards x, dense, f32 or bf16, is the sum of all ranks'.
  virtual Collective AllReduce(const tensor::View& x) = 0;

  // Sends outgoing[r] to rank r and receives incoming[r] from it; the two ranks' sizes agree, and
  // may be 0. The own ones have one size too.
  virtual Collective AllToAll(std::span<const ConstBytes> outgoing,
                              std::span<const Bytes> incoming) = 0;

  // Afterwards `data` is rank root's everywhere.
  virtual Collective Broadcast(int root, Bytes data) = 0;

  // Whether what an operation queues may be recorded, with the ops around it, and queued again
  // instead of posting the operation (ops/step_recorder.h), by all ranks alike.
  virtual bool repeatable() const { return false; }

  // What other ranks have sent to this one in the operations posted so far.
  virtual int64_t received_bytes() const = 0;

  // Ends what is pending, here and at the others. Any thread may call it. Idempotent.
  virtual void Close() = 0;
};

}  // namespace longspan::comm
