#include <cstddef>

#include "base/check.h"
#include "checkpoint/safetensors_header.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace longspan::testing {

void FuzzSafetensors(FuzzInput input) {
  const auto index = checkpoint::ParseSafetensorsHeader(std::as_bytes(input), "file");
  if (!index.ok()) {
    LONGSPAN_CHECK(index.status().code() == base::StatusCode::kDataLoss, "{}",
                   index.status().message());
    return;
  }
  int64_t bytes = 0;
  for (const auto& [name, entry] : *index) {
    LONGSPAN_CHECK(entry.begin >= 8 && entry.begin <= entry.end &&
                       entry.end <= static_cast<int64_t>(input.size()),
                   "{} lies at {} to {} of {} bytes", name, entry.begin, entry.end, input.size());
    for (const int64_t size : entry.shape) LONGSPAN_CHECK(size >= 0, "{} has size {}", name, size);
    bytes += entry.end - entry.begin;
  }
  LONGSPAN_CHECK(bytes <= static_cast<int64_t>(input.size()) - 8, "tensors overlap");
}

}  // namespace longspan::testing
