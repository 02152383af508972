// What the host backends share: how much memory is left, and copies between bytes and tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/status.h"
#include "tensor/view.h"

namespace longspan::tensor {

// Bytes that this process may still allocate without swapping or being killed: MemAvailable of
// /proc/meminfo, or what is left under the limit of its control group (versions 1 and 2, any of its
// ancestors) where that is less. Page cache that can be dropped counts as free.
int64_t AvailableHostBytes();

// The same for a file system whose root is `root`.
int64_t AvailableHostBytes(const std::filesystem::path& root);

// Copies between bytes and a dense tensor in host memory. Refuses a view with gaps and sizes that
// differ.
base::Status CopyIn(std::span<const std::byte> bytes, const View& tensor);
base::Status CopyOut(const ConstView& tensor, std::span<std::byte> bytes);

// Row `row` of a matrix of f32, bf16 or f16 as floats; exact. `out` has room for its columns.
void WidenRow(const ConstView& matrix, int64_t row, float* out);

}  // namespace longspan::tensor
