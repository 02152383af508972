// Device memory, pinned host memory, and the way of weights into the former.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "tensor/buffer.h"

namespace longspan::backend::cuda {

// Zeroed memory of the current device. ResourceExhausted with both numbers where it has no more.
base::Result<tensor::Buffer> AllocateDevice(int64_t bytes);

// The same for weights, which are many and never given back one by one: cut from large blocks, so
// that the driver does not round thousands of matrices up to its own pages. Not zeroed. A block is
// freed with the last buffer in it.
base::Result<tensor::Buffer> AllocateWeights(int64_t bytes);

// Host memory that the device copies from and to by itself.
base::Result<tensor::Buffer> AllocatePinned(int64_t bytes);

// Bytes that the current device still has; 0 where that cannot be told.
int64_t AvailableDeviceBytes();

// Host bytes to the current device through pinned buffers of this thread; `host` may be reused when
// it returns, and whatever is queued afterwards on any stream finds the bytes there. For weights,
// not for steps.
base::Status CopyToDevice(std::span<const std::byte> host, void* device);

}  // namespace longspan::backend::cuda
