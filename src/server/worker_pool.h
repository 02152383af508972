// Threads for work that would hold up the I/O thread: parsing and tokenising requests.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace longspan::server {

// Bounded: a full queue refuses. Thread-safe.
class WorkerPool {
 public:
  using Task = std::function<void()>;

  static base::Result<std::unique_ptr<WorkerPool>> Create(int threads, size_t most_waiting);
  // Runs what waits, then ends.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;

  // False where too many wait already.
  bool Post(Task task);

 private:
  explicit WorkerPool(size_t most_waiting) : most_waiting_(most_waiting) {}
  void Loop();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longspan::server
