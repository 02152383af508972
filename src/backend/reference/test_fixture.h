// What the tests of this folder share.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "ops/counter_random.h"
#include "ops/dispatch.h"

namespace longspan::backend::reference {

inline std::vector<float> RandomValues(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(2 * ops::CounterUniform(seed, i, 0) - 1);
  return values;
}

inline tensor::View Floats(std::vector<float>& values, std::initializer_list<int64_t> sizes) {
  return {values.data(), tensor::DType::kF32, sizes};
}
inline tensor::View Ints(std::vector<int32_t>& values, std::initializer_list<int64_t> sizes) {
  return {values.data(), tensor::DType::kI32, sizes};
}

class ReferenceTest : public testing::Test {
 protected:
  // Host memory is device memory here: views of vectors will do.
  template <typename Args>
  void Run(void (*op)(tensor::ExecutionContext&, const Args&),
           const std::type_identity_t<Args>& args) {
    tensor::ExecutionContext context = {*queue_, workspace_};
    ops::Dispatch(context, op, args);
  }

  const ops::Backend& backend_ = ReferenceBackend();
  const ops::OpTable& ops_ = backend_.ops();
  std::unique_ptr<tensor::Queue> queue_ = std::move(backend_.CreateQueue({.threads = 2})).value();
  tensor::Workspace workspace_ =
      tensor::Workspace(std::move(backend_.Allocate(backend_.WorkspaceBytes(
                                      *queue_, {.head_dim = 64, .max_columns = 512})))
                            .value());
};

}  // namespace longspan::backend::reference
