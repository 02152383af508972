// The compute threads of one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tensor/execution_context.h"

namespace longspan::tensor {

// A fixed set of threads for data-parallel loops: the caller and threads - 1 workers. It is the
// Queue of the host backends: an op has taken effect when its loops return. One ParallelFor at a
// time, from one thread.
class ThreadPool : public Queue {
 public:
  struct Options {
    int threads = 1;
    // The cores that the threads are pinned to, one each, the caller's thread (the one that
    // constructs the pool) first; empty: not pinned.
    std::vector<int> cores;
  };

  // Throws std::system_error where the system gives it no more threads; nothing is left running
  // then.
  explicit ThreadPool(const Options& options);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) for every task in [0, tasks), each once, on any thread in [0,
  // threads()), and returns when all are done. Which thread takes which task is not fixed, so a
  // result may not depend on it.
  template <typename Body>
  void ParallelFor(int64_t tasks, const Body& body) {
    Run(tasks, &body, [](const void* context, int64_t task, int thread) {
      (*static_cast<const Body*>(context))(task, thread);
    });
  }

  base::Status Synchronize() override { return base::OkStatus(); }

 private:
  // A body without its type: no allocation for a loop.
  using Call = void (*)(const void* body, int64_t task, int thread);

  void Run(int64_t tasks, const void* body, Call call);
  void WorkerLoop(int thread);
  void TakeTasks(int thread);
  void StopWorkers();

  std::vector<std::thread> workers_;
  const void* body_ = nullptr;
  Call call_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_task_{0};
  std::atomic<int> running_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> stop_{false};
};

// The cores that this process might run on when it started, in order.
const std::vector<int>& AllowedCores();

// Lets the calling thread run on any of them, where it inherited the core of the thread that
// started it.
void UnpinThisThread();

// The cores of rank `rank` of `ranks` with `threads` threads each; empty (no pinning) where the
// ranks together have more threads than there are cores.
std::vector<int> CoresOfRank(int rank, int ranks, int threads);

}  // namespace longspan::tensor
