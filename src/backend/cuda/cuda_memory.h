// Device memory and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "tensor/buffer.h"

namespace longspan::backend::cuda {

// Zeroed memory of the current device. ResourceExhausted with both numbers where it has no more.
base::Result<tensor::Buffer> AllocateDevice(int64_t bytes);

// Bytes that the current device still has; 0 where that cannot be told.
int64_t AvailableDeviceBytes();

// Host bytes to the current device, through pinned buffers; returns when they are there. For
// weights, not for steps.
base::Status CopyToDevice(std::span<const std::byte> host, void* device);

}  // namespace longspan::backend::cuda
