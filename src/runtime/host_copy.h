// Small copies between host vectors and the device.
#pragma once

#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "tensor/workspace.h"

namespace longspan::runtime {

// A device copy of `values` in the scope's memory.
template <typename T>
base::Result<tensor::View> ToDevice(const ops::Backend& backend, tensor::Queue& queue,
                                    tensor::Workspace::Scope& scope, const std::vector<T>& values) {
  const tensor::View view =
      scope.Take(tensor::DTypeOf<T>::kValue, {static_cast<int64_t>(values.size())});
  LONGSPAN_RETURN_IF_ERROR(backend.Upload(queue, std::as_bytes(std::span(values)), view));
  return view;
}

// A host copy of a dense view.
template <typename T>
base::Result<std::vector<T>> ToHost(const ops::Backend& backend, tensor::Queue& queue,
                                    const tensor::ConstView& view) {
  std::vector<T> values(static_cast<size_t>(view.elements()));
  LONGSPAN_RETURN_IF_ERROR(
      backend.Download(queue, view, std::as_writable_bytes(std::span(values))));
  return values;
}

// A host copy of a dense view of floats (f32 or bf16), as f32.
inline base::Result<std::vector<float>> FloatsToHost(const ops::Backend& backend,
                                                     tensor::Queue& queue,
                                                     const tensor::ConstView& view) {
  if (view.dtype() == tensor::DType::kF32) return ToHost<float>(backend, queue, view);
  LONGSPAN_ASSIGN_OR_RETURN(const auto stored, ToHost<tensor::Bf16>(backend, queue, view));
  std::vector<float> values;
  values.reserve(stored.size());
  for (const tensor::Bf16 value : stored) values.push_back(tensor::ToFloat(value));
  return values;
}

}  // namespace longspan::runtime
