#include "server/worker_pool.h"

#include <system_error>
#include <utility>

#include "base/thread_name.h"

namespace longspan::server {

base::Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(int threads, size_t most_waiting) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool(most_waiting));
  try {
    for (int i = 0; i < threads; ++i)
      pool->threads_.emplace_back([raw = pool.get()] { raw->Loop(); });
  } catch (const std::system_error& error) {
    return base::ResourceExhausted("cannot start {} threads for requests: {}", threads,
                                   error.code().message());
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void WorkerPool::Loop() {
  base::NameThisThread("requests");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace longspan::server
