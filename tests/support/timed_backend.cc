#include "tests/support/timed_backend.h"

#include "backend/emulated/emulated_backend.h"

namespace longspan::support {

std::unique_ptr<ops::Backend> CreateTimedBackend(const TimedCost& cost, int32_t token) {
  const auto layer_s = [cost](int, std::span<const plan::RowRange> slices) {
    double seconds = cost.per_call;
    for (const plan::RowRange& slice : slices)
      seconds += cost.Layer(slice.begin, slice.end - slice.begin) - cost.per_call;
    return seconds;
  };
  return backend::emulated::CreateEmulatedBackend({.layer_s = layer_s}, token);
}

}  // namespace longspan::support
