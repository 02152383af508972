// What a stage reports when it cannot get memory for its own work.
#pragma once

#include "base/status.h"

namespace longspan::runtime {

inline base::Status OutOfMemory() {
  return base::ResourceExhausted(
      "a stage is out of memory: give it more, or lower --chunked-prefill-size or "
      "--max-total-tokens");
}

}  // namespace longspan::runtime
