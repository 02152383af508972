// What an op runs with.
#pragma once

#include "base/status.h"
#include "tensor/workspace.h"

namespace longspan::tensor {

// Where ops are put: a pool of threads on a CPU, a stream on a GPU. Ops of one queue take effect in
// order. A queue belongs to one thread at a time.
class Queue {
 public:
  virtual ~Queue() = default;
  // Waits until everything queued so far is done; reports the first error of it.
  virtual base::Status Synchronize() = 0;
};

// Passed to every op. `deterministic` asks for results that are the same bits however the step is
// cut.
struct ExecutionContext {
  Queue& queue;
  Workspace& workspace;
  bool deterministic = false;
};

}  // namespace longspan::tensor
