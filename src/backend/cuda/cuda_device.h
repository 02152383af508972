// Which GPUs there are, and whether this program has kernels for them. No context is made.
#pragma once

#include <string>

#include "base/status.h"

namespace longspan::backend::cuda {

// Ok where the machine has at least one GPU that CheckDevice accepts; else why not: no GPU, another
// generation, or a driver that is older than what the program was built for.
base::Status FindDevice();

// Refuses a number that no GPU has, and GPUs of another generation than Hopper.
base::Status CheckDevice(int device);

// What the driver calls it, such as "NVIDIA H200"; empty where there is none of that number.
std::string DeviceName(int device);

}  // namespace longspan::backend::cuda
