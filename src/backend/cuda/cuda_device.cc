#include "backend/cuda/cuda_device.h"

#include <cstdlib>
#include <cuda_runtime_api.h>
#include <string>

#include <fmt/format.h>

#include "backend/cuda/cuda_error.h"

namespace longspan::backend::cuda {
namespace {

// "13.0" of CUDA's 13000.
std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

base::Status FindDevice() {
  // Before anything else: streams that share one of the device's few queues wait for each other,
  // also where one waits for another rank of this process.
  (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (driver == 0 || error == cudaErrorNoDevice || (error == cudaSuccess && devices == 0))
    return base::NotFound("no NVIDIA GPU was found: use --backend cpu");
  if (error == cudaErrorInsufficientDriver)
    return base::Unimplemented(
        "the NVIDIA driver is for CUDA {}, older than the {} that this program was built with: "
        "update it, or use --backend cpu",
        VersionText(driver), VersionText(runtime));
  LONGSPAN_RETURN_IF_CUDA(error, "look for GPUs");
  base::Status first = CheckDevice(0);
  for (int device = 1; device < devices; ++device)
    if (CheckDevice(device).ok()) return base::OkStatus();
  return first;
}

base::Status CheckDevice(int device) {
  int devices = 0;
  LONGSPAN_RETURN_IF_CUDA(cudaGetDeviceCount(&devices), "look for GPUs");
  if (device >= devices)
    return base::InvalidArgument(
        "a stage is to use GPU {} and there are {}: use fewer ranks (--pp-size, --cp-size, "
        "--tp-size), "
        "lower --base-gpu-id, or let ranks share GPUs with --gpu-id-step 0",
        device, devices);
  cudaDeviceProp properties{};
  LONGSPAN_RETURN_IF_CUDA(cudaGetDeviceProperties(&properties, device), "look at the GPU");
  if (properties.major != 9 || properties.minor != 0)
    return base::Unimplemented(
        "GPU {} is a {} of compute capability {}.{}, and this program has kernels for Hopper's 9.0 "
        "alone: use another GPU, or --backend cpu",
        device, properties.name, properties.major, properties.minor);
  return base::OkStatus();
}

std::string DeviceName(int device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) return properties.name;
  (void)cudaGetLastError();
  return {};
}

}  // namespace longspan::backend::cuda
