// A backend with a queue, a workspace and memory, as a test needs it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "ops/dispatch.h"

namespace longspan::support {

// Everything that it hands out lives as long as it does. Failures of the backend end the test
// program: no test here is about them.
class TestDevice {
 public:
  // The workspace is exactly as large as the backend says that steps of `shape` need.
  TestDevice(const ops::Backend& backend, int threads, const ops::WorkspaceShape& shape);

  const ops::Backend& backend() const { return backend_; }
  const ops::OpTable& ops() const { return backend_.ops(); }
  tensor::Queue& queue() { return *queue_; }
  tensor::ExecutionContext& context() { return context_; }

  using Sizes = std::initializer_list<int64_t>;

  // Values on the device, as f32 or bf16.
  tensor::View Floats(std::span<const float> values, tensor::DType type, Sizes sizes);
  tensor::View Ints(std::span<const int32_t> values, Sizes sizes);
  tensor::View Longs(std::span<const int64_t> values, Sizes sizes);
  tensor::View Zeros(tensor::DType type, Sizes sizes);

  // A packed weight of `values` [rows, columns].
  const ops::PackedWeight* Weight(std::span<const float> values, tensor::DType compute,
                                  int64_t rows, int64_t columns);
  const ops::PackedWeight* Pack(std::span<const tensor::ConstView> parts, tensor::DType compute);

  // Back on the host, densely; the view's rows may have gaps between them.
  std::vector<float> ReadFloats(const tensor::ConstView& view);
  std::vector<int32_t> ReadInts(const tensor::ConstView& view);

  template <typename Args>
  void Run(void (*op)(tensor::ExecutionContext&, const Args&),
           const std::type_identity_t<Args>& args) {
    ops::Dispatch(context_, op, args);
  }

 private:
  template <typename T>
  tensor::View Upload(std::span<const T> values, Sizes sizes);
  template <typename T>
  std::vector<T> Read(const tensor::ConstView& view);

  const ops::Backend& backend_;
  std::unique_ptr<tensor::Queue> queue_;
  tensor::Workspace workspace_;
  tensor::ExecutionContext context_;
  std::vector<tensor::Buffer> buffers_;
  std::vector<std::unique_ptr<ops::PackedWeight>> weights_;
};

}  // namespace longspan::support
