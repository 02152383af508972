#include "tensor/buffer.h"

#include <cstring>
#include <sys/mman.h>

namespace longspan::tensor {

base::Result<Buffer> AllocateHost(int64_t bytes) {
  LONGSPAN_CHECK(bytes >= 0, "{} bytes asked for", bytes);
  const int64_t size = bytes == 0 ? 1 : bytes;
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return base::ResourceExhausted(
        "no memory for {:.1f} MiB: give it more, or lower --max-total-tokens",
        static_cast<double>(bytes) / (1 << 20));
  // Long rows of KV and weights are read in order: fewer page-table misses with large pages.
  madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
  return Buffer(data, bytes, [size](void* p, int64_t) { munmap(p, static_cast<size_t>(size)); });
}

}  // namespace longspan::tensor
