#include "backend/cuda/peer_memory.h"

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>

#include "backend/cuda/cuda_error.h"

namespace longspan::backend::cuda {
namespace {

using HandleBytes = std::array<std::byte, sizeof(cudaIpcMemHandle_t)>;

// What a comm::PeerPlace holds.
struct Place {
  HandleBytes handle{};
  uint64_t offset = 0;   // from the beginning of the allocation that the handle stands for
  uint64_t address = 0;  // in the process that exported it
  int32_t process = 0;
};
static_assert(sizeof(Place) <= sizeof(comm::PeerPlace));

// The beginning of the allocation that holds `data`: handles are made of those only.
base::Result<std::byte*> AllocationOf(std::byte* data) {
  using GetRange = CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  LONGSPAN_RETURN_IF_CUDA(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000,
                                                           cudaEnableDefault, &found),
                          "find an allocation of the GPU");
  if (found != cudaDriverEntryPointSuccess)
    return base::Internal("the driver does not tell the allocations of a GPU");
  CUdeviceptr base = 0;
  size_t size = 0;
  const auto get_range = reinterpret_cast<GetRange>(function);
  const CUresult result = get_range(&base, &size, reinterpret_cast<CUdeviceptr>(data));
  if (result != CUDA_SUCCESS)
    return base::Internal("a buffer for copies between GPUs is not in the memory of one ({})",
                          static_cast<int>(result));
  return reinterpret_cast<std::byte*>(base);
}

class CudaPeerMemory : public comm::PeerMemory {
 public:
  static base::Result<std::unique_ptr<comm::PeerMemory>> Create(int device) {
    std::unique_ptr<CudaPeerMemory> memory(new CudaPeerMemory(device));
    LONGSPAN_RETURN_IF_CUDA(cudaSetDevice(device), "use the GPU");
    LONGSPAN_RETURN_IF_CUDA(cudaStreamCreateWithFlags(&memory->stream_, cudaStreamNonBlocking),
                            "make a stream for copies between GPUs");
    memory->thread_ = std::thread([raw = memory.get()] { raw->CompleteCopies(); });
    return std::unique_ptr<comm::PeerMemory>(std::move(memory));
  }

  ~CudaPeerMemory() override {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        ending_ = true;
      }
      changed_.notify_all();
      thread_.join();
    }
    (void)cudaSetDevice(device_);
    for (const auto& [handle, base] : opened_) (void)cudaIpcCloseMemHandle(base);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  base::Result<comm::PeerPlace> Export(std::span<std::byte> buffer) override {
    LONGSPAN_RETURN_IF_CUDA(cudaSetDevice(device_), "use the GPU");
    Place place{.address = reinterpret_cast<uint64_t>(buffer.data()), .process = ::getpid()};
    if (!buffer.empty()) {
      LONGSPAN_ASSIGN_OR_RETURN(std::byte* const base, AllocationOf(buffer.data()));
      LONGSPAN_ASSIGN_OR_RETURN(place.handle, HandleOf(base));
      place.offset = static_cast<uint64_t>(buffer.data() - base);
    }
    comm::PeerPlace bytes{};
    std::memcpy(bytes.data(), &place, sizeof(place));
    return bytes;
  }

  comm::Transfer Copy(std::span<const std::byte> data, const comm::PeerPlace& bytes) override {
    if (data.empty()) return {};
    Place place;
    std::memcpy(&place, bytes.data(), sizeof(place));
    auto copy = Start(data, place);
    if (!copy.ok()) return comm::Transfer::Done(copy.status());
    comm::Transfer transfer = copy->source.transfer();
    {
      const std::lock_guard lock(mutex_);
      copies_.push_back(std::move(*copy));
    }
    changed_.notify_all();
    return transfer;
  }

 private:
  struct RunningCopy {
    cudaEvent_t done = nullptr;
    comm::TransferSource source;
  };

  explicit CudaPeerMemory(int device) : device_(device) {}

  base::Result<HandleBytes> HandleOf(std::byte* base) {
    const std::lock_guard lock(mutex_);
    if (const auto known = exported_.find(base); known != exported_.end()) return known->second;
    cudaIpcMemHandle_t handle;
    LONGSPAN_RETURN_IF_CUDA(cudaIpcGetMemHandle(&handle, base), "share memory of the GPU");
    HandleBytes bytes;
    std::memcpy(bytes.data(), &handle, sizeof(handle));
    exported_.emplace(base, bytes);
    return bytes;
  }

  // The peer's allocation as this process sees it.
  base::Result<std::byte*> Open(const HandleBytes& bytes) {
    const std::lock_guard lock(mutex_);
    if (const auto known = opened_.find(bytes); known != opened_.end()) return known->second;
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, bytes.data(), sizeof(handle));
    void* base = nullptr;
    LONGSPAN_RETURN_IF_CUDA(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
                            "reach the memory of the next GPU");
    opened_.emplace(bytes, static_cast<std::byte*>(base));
    return static_cast<std::byte*>(base);
  }

  base::Result<RunningCopy> Start(std::span<const std::byte> data, const Place& place) {
    LONGSPAN_RETURN_IF_CUDA(cudaSetDevice(device_), "use the GPU");
    auto* target = reinterpret_cast<std::byte*>(place.address);
    if (place.process != ::getpid()) {
      LONGSPAN_ASSIGN_OR_RETURN(std::byte* const base, Open(place.handle));
      target = base + place.offset;
    }
    cudaEvent_t done = nullptr;
    LONGSPAN_RETURN_IF_CUDA(
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming | cudaEventBlockingSync),
        "make an event of the GPU");
    cudaError_t error =
        cudaMemcpyAsync(target, data.data(), data.size(), cudaMemcpyDeviceToDevice, stream_);
    if (error == cudaSuccess) error = cudaEventRecord(done, stream_);
    if (error != cudaSuccess) {
      (void)cudaEventDestroy(done);
      return ToStatus(error, "copy to the next GPU");
    }
    RunningCopy copy;
    copy.done = done;
    return copy;
  }

  // Ends transfers in the order of their copies.
  void CompleteCopies() {
    (void)cudaSetDevice(device_);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !copies_.empty(); });
      if (copies_.empty()) return;
      RunningCopy copy = std::move(copies_.front());
      copies_.pop_front();
      lock.unlock();
      const cudaError_t error = cudaEventSynchronize(copy.done);
      (void)cudaEventDestroy(copy.done);
      copy.source.Complete(ToStatus(error, "copy to the next GPU"));
      lock.lock();
    }
  }

  const int device_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::byte*, HandleBytes> exported_;
  std::map<HandleBytes, std::byte*> opened_;
  std::deque<RunningCopy> copies_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace

bool CanCopyBetween(int from, int to) {
  if (from == to) return true;
  int can = 0;
  return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

int VisibleDevices() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

base::Result<std::unique_ptr<comm::PeerMemory>> CreatePeerMemory(int device) {
  return CudaPeerMemory::Create(device);
}

}  // namespace longspan::backend::cuda
