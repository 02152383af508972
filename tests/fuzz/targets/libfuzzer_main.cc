// The entry of libFuzzer for the target that LONGSPAN_FUZZ_TARGET names.
#include "tests/fuzz/targets/fuzz_targets.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  longspan::testing::LONGSPAN_FUZZ_TARGET({data, size});
  return 0;
}
