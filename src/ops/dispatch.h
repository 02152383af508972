// How ops are called: the arguments are checked, then the backend's kernel runs.
#pragma once

#include <type_traits>

#include "ops/op_table.h"

namespace longspan::ops {

// Dispatch(context, table.linear, {.x = ..., ...}).
template <typename Args>
void Dispatch(tensor::ExecutionContext& context, void (*op)(tensor::ExecutionContext&, const Args&),
              const std::type_identity_t<Args>& args) {
  LONGSPAN_CHECK(op != nullptr,
                 "an op that the backend lacks; it should have been refused at load");
  CheckArgs(args);
  op(context, args);
}

}  // namespace longspan::ops
