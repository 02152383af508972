#include "tests/ops/backends.h"

#include <fmt/format.h>

#include "backend/reference/reference_backend.h"

namespace longspan::op_suite {

std::vector<BackendCase> ComparedBackends() { return {}; }

std::vector<BackendCase> AllBackends() {
  std::vector<BackendCase> cases = ComparedBackends();
  cases.insert(cases.begin(), {&backend::reference::ReferenceBackend()});
  return cases;
}

std::string CaseName(const testing::TestParamInfo<BackendCase>& info) {
  const BackendCase& c = info.param;
  std::string name = fmt::format("{}_{}", c.backend->name(), tensor::DTypeName(c.compute));
  if (c.kv_cache != c.compute) name += fmt::format("_kv_{}", tensor::DTypeName(c.kv_cache));
  return name;
}

}  // namespace longspan::op_suite
