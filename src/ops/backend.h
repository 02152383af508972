// What a backend is: a table of ops, device memory, queues, and its own layout of weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/op_table.h"
#include "ops/packed_weight.h"
#include "tensor/buffer.h"
#include "tensor/execution_context.h"

namespace longspan::ops {

// How a rank computes: on which cores or device.
struct QueueOptions {
  int threads = 1;
  std::vector<int> cores;  // to pin the threads to; empty: not pinned
  int device = 0;          // which GPU, among those that the process sees
};

// The largest step that will be run, for sizing workspace once.
struct WorkspaceShape {
  int64_t rows = 0;
  int64_t logit_rows = 0;  // rows that get logits at once
  int64_t vocab_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_size = 0;
  int64_t max_columns = 0;  // of any x in a product
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  // Latent attention: dimensions of the latent and of the rope key of a token.
  int64_t latent_rank = 0;
  int64_t latent_rope_dim = 0;
  // And of a head's expanded key, without the rope key, and value; 0 where no step is expanded.
  int64_t latent_nope_dim = 0;
  int64_t latent_value_dim = 0;
  // Index selection.
  int64_t index_heads = 0;
  int64_t index_dim = 0;
  int64_t index_top_k = 0;
};

// Stateless but for the device; thread-safe. The types that ops may be used with: activations,
// weights and cache as CheckTypes allows.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual const OpTable& ops() const = 0;

  // True where every step is computed as with --deterministic.
  virtual bool always_deterministic() const { return false; }

  // Refuses a compute type (of activations and products) or cache type that it lacks, naming what
  // it has.
  virtual base::Status CheckTypes(tensor::DType compute, tensor::DType kv_cache) const = 0;

  virtual base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const QueueOptions& options) const = 0;

  // False where device memory is not the host's: links and files reach it through staging memory.
  virtual bool is_on_host() const { return true; }

  // Zeroed device memory.
  virtual base::Result<tensor::Buffer> Allocate(int64_t bytes) const = 0;

  // Device memory that may still be allocated, in bytes.
  virtual int64_t AvailableBytes() const = 0;

  // Bytes of workspace that any single op takes for steps up to this shape, with that queue.
  virtual int64_t WorkspaceBytes(const tensor::Queue& queue, const WorkspaceShape& shape) const = 0;

  virtual base::Result<std::unique_ptr<PackedWeight>> Pack(const PackRequest& request) const = 0;

  // Whether it makes weights by itself, without their bytes on the host.
  virtual bool generates_weights() const { return false; }
  virtual base::Result<std::unique_ptr<PackedWeight>> Generate(
      const GenerateRequest& /*request*/) const {
    return base::Unimplemented("the {} backend makes no weights", name());
  }

  // Host to device, and back; dense views, sizes equal. In the order of the queue; `Download`
  // returns when the bytes are there, `Upload` when `host` may be reused.
  virtual base::Status Upload(tensor::Queue& queue, std::span<const std::byte> host,
                              tensor::View device) const = 0;
  virtual base::Status Download(tensor::Queue& queue, tensor::ConstView device,
                                std::span<std::byte> host) const = 0;

  // Host memory for copies that go on while the caller does other work.
  virtual base::Result<tensor::Buffer> AllocateStaging(int64_t bytes) const {
    return tensor::AllocateHost(bytes);
  }
  // As above with `host` in staging memory, but back at once: the bytes stay the queue's until it
  // has been synchronised.
  virtual base::Status StartUpload(tensor::Queue& queue, std::span<const std::byte> host,
                                   tensor::View device) const {
    return Upload(queue, host, device);
  }
  virtual base::Status StartDownload(tensor::Queue& queue, tensor::ConstView device,
                                     std::span<std::byte> host) const {
    return Download(queue, device, host);
  }
};

}  // namespace longspan::ops
