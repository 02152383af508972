#include "tensor/thread_pool.h"

#include <pthread.h>
#include <sched.h>

namespace longspan::tensor {
namespace {

// How often a waiting thread looks before it sleeps: some microseconds, so that the gaps between
// the ops of a step cost no wake-up, and a thread that waits for another rank does not take its
// core.
constexpr int kSpins = 2000;

std::vector<int> ReadCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

// Read before any thread is pinned: a pinned thread, and those that it starts, see their own core
// only.
const std::vector<int> kStartCores = ReadCores();

void SetAffinity(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  // A refusal (a core taken away meanwhile) costs speed, never a result.
  (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

void PinThisThread(int core) { SetAffinity({core}); }

template <typename T>
void WaitWhileEqual(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(const Options& options) {
  const auto pin = [&options](int thread) {
    if (thread < static_cast<int>(options.cores.size())) PinThisThread(options.cores[thread]);
  };
  pin(0);
  try {
    for (int thread = 1; thread < options.threads; ++thread) {
      workers_.emplace_back([this, pin, thread] {
        pin(thread);
        WorkerLoop(thread);
      });
      // pin refers to options: the thread must have started before the constructor returns.
      running_.fetch_add(1);
    }
  } catch (...) {
    StopWorkers();
    throw;
  }
  for (int left = running_.load(); left != 0; left = running_.load())
    WaitWhileEqual(running_, left);
}

ThreadPool::~ThreadPool() { StopWorkers(); }

void ThreadPool::StopWorkers() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t tasks, const void* body, Call call) {
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) call(body, task, 0);
    return;
  }
  body_ = body;
  call_ = call;
  tasks_ = tasks;
  next_task_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  TakeTasks(0);
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhileEqual(running_, left);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t round = 0;
  running_.fetch_sub(1, std::memory_order_acq_rel);
  running_.notify_all();
  while (true) {
    WaitWhileEqual(round_, round);
    // Rounds cannot be skipped: the caller waits for every worker before it starts the next.
    ++round;
    if (stop_.load()) return;
    TakeTasks(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

void ThreadPool::TakeTasks(int thread) {
  for (int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed); task < tasks_;
       task = next_task_.fetch_add(1, std::memory_order_relaxed)) {
    call_(body_, task, thread);
  }
}

const std::vector<int>& AllowedCores() { return kStartCores; }

void UnpinThisThread() { SetAffinity(kStartCores); }

std::vector<int> CoresOfRank(int rank, int ranks, int threads) {
  const std::vector<int>& cores = AllowedCores();
  if (int64_t{ranks} * threads > static_cast<int64_t>(cores.size())) return {};
  const auto begin = cores.begin() + int64_t{rank} * threads;
  return {begin, begin + threads};
}

}  // namespace longspan::tensor
