#include "backend/cuda/step_graphs.h"

#include <algorithm>

#include "base/log.h"

namespace longspan::backend::cuda {

StepGraphs::~StepGraphs() {
  for (const auto& [key, entry] : entries_)
    if (entry.graph != nullptr) (void)cudaGraphExecDestroy(entry.graph);
}

void StepGraphs::Run(uint64_t key, const std::function<void()>& calls) {
  const auto [found, is_new] = entries_.try_emplace(key);
  Entry& entry = found->second;
  entry.last_use = ++uses_;
  if (entry.graph == nullptr && !is_new && !refused_) entry.graph = Record(calls);
  if (entry.graph != nullptr)
    return queue_.Note(cudaGraphLaunch(entry.graph, queue_.stream()), "step");
  calls();
  if (is_new) MakeRoom();
}

cudaGraphExec_t StepGraphs::Record(const std::function<void()>& calls) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaError_t error = cudaStreamBeginCapture(queue_.stream(), cudaStreamCaptureModeThreadLocal);
  if (error == cudaSuccess) {
    calls();
    error = cudaStreamEndCapture(queue_.stream(), &graph);
  }
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (error == cudaSuccess) return executable;
  (void)cudaGetLastError();
  refused_ = true;
  base::Log("backend").warn("decoding without CUDA graphs: {}", cudaGetErrorString(error));
  return nullptr;
}

void StepGraphs::MakeRoom() {
  if (entries_.size() <= kMostGraphs) return;
  const auto oldest = std::min_element(
      entries_.begin(), entries_.end(),
      [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
  if (oldest->second.graph != nullptr) (void)cudaGraphExecDestroy(oldest->second.graph);
  entries_.erase(oldest);
}

}  // namespace longspan::backend::cuda
