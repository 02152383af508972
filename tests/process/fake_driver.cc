// Stands in for libcuda.so.1: the driver of an older CUDA, which answers nothing but its version.
#include <cstring>

namespace {

int None() { return 999; }  // CUDA_ERROR_UNKNOWN

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}

[[gnu::visibility("default")]] int cuInit(unsigned /*flags*/) { return 0; }

// NOLINTNEXTLINE(google-runtime-int): the driver's own type
[[gnu::visibility("default")]] int cuGetProcAddress_v2(const char* name, void** function, int,
                                                       unsigned long long, void* result) {
  *function = reinterpret_cast<void*>(None);
  if (std::strcmp(name, "cuDriverGetVersion") == 0)
    *function = reinterpret_cast<void*>(cuDriverGetVersion);
  if (std::strcmp(name, "cuInit") == 0) *function = reinterpret_cast<void*>(cuInit);
  if (std::strncmp(name, "cuGetProcAddress", 16) == 0)
    *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
  if (result != nullptr) *static_cast<int*>(result) = 0;
  return 0;
}

}  // extern "C"
