// CUDA graphs of what steps queue again and again.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <unordered_map>

#include "backend/cuda/cuda_queue.h"
#include "ops/step_recorder.h"

namespace longspan::backend::cuda {

// A graph per key: the first time its ops are only run (kernels are loaded, products choose their
// algorithm), the second time they are recorded, and from then on one launch replays them all.
// Where recording fails they are run as they are, then and later. One thread, one stream.
class StepGraphs : public ops::StepRecorder {
 public:
  explicit StepGraphs(CudaQueue& queue) : queue_(queue) {}
  ~StepGraphs() override;
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  void Run(uint64_t key, const std::function<void()>& calls) override;

 private:
  // The oldest go first: keys that grow with the context do not come back.
  static constexpr size_t kMostGraphs = 96;

  cudaGraphExec_t Record(const std::function<void()>& calls);
  void MakeRoom();

  struct Entry {
    cudaGraphExec_t graph = nullptr;
    uint64_t last_use = 0;
  };
  CudaQueue& queue_;
  std::unordered_map<uint64_t, Entry> entries_;
  uint64_t uses_ = 0;
  bool refused_ = false;
};

}  // namespace longspan::backend::cuda
