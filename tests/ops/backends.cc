#include "tests/ops/backends.h"

#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/reference/reference_backend.h"

namespace longspan::op_suite {

std::vector<BackendCase> ComparedBackends() {
  using tensor::DType;
  std::vector<const ops::Backend*> backends = {&backend::cpu::CpuBackend()};
  // Where the machine has a GPU.
  if (const auto cuda = backend::cuda::CudaBackend(); cuda.ok()) backends.push_back(*cuda);
  std::vector<BackendCase> cases;
  for (const ops::Backend* backend : backends) {
    cases.push_back({backend, DType::kF32, DType::kF32});
    cases.push_back({backend, DType::kBf16, DType::kBf16});
    cases.push_back({backend, DType::kF32, DType::kBf16});
    cases.push_back({backend, DType::kBf16, DType::kF32});
  }
  return cases;
}

std::vector<BackendCase> AllBackends() {
  std::vector<BackendCase> cases = ComparedBackends();
  cases.insert(cases.begin(), {&backend::reference::ReferenceBackend()});
  return cases;
}

namespace {

std::string Name(const BackendCase& c) {
  std::string name = fmt::format("{}_{}", c.backend->name(), tensor::DTypeName(c.compute));
  if (c.kv_cache != c.compute) name += fmt::format("_kv_{}", tensor::DTypeName(c.kv_cache));
  return name;
}

}  // namespace

std::string CaseName(const testing::TestParamInfo<BackendCase>& info) { return Name(info.param); }

void PrintTo(const BackendCase& c, std::ostream* out) { *out << Name(c); }

}  // namespace longspan::op_suite
