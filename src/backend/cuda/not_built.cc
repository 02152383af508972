#include "backend/cuda/copy_rate.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/peer_group.h"
#include "backend/cuda/peer_memory.h"

namespace longspan::backend::cuda {

bool CudaIsBuilt() { return false; }

base::Result<double> MeasureCopyRate(tensor::Queue& /*queue*/) {
  return base::Unimplemented("this program was built without CUDA");
}

int VisibleDevices() { return 0; }

std::string DeviceName(int /*device*/) { return {}; }

bool CanCopyBetween(int /*from*/, int /*to*/) { return false; }

base::Result<std::unique_ptr<comm::PeerMemory>> CreatePeerMemory(int /*device*/) {
  return base::Unimplemented("this program was built without CUDA");
}

base::Result<std::unique_ptr<comm::RankGroup>> CreatePeerGroup(tensor::Queue& /*queue*/,
                                                               std::vector<comm::Link*> /*peers*/,
                                                               int /*rank*/, uint64_t /*tag*/) {
  return base::Unimplemented("this program was built without CUDA");
}

base::Result<const ops::Backend*> CudaBackend() {
  return base::Unimplemented(
      "this program was built without CUDA: configure it with -DLONGSPAN_CUDA=ON, or use "
      "--backend cpu");
}

}  // namespace longspan::backend::cuda
