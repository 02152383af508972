// A backend that is another one but for what a test changes.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "ops/backend.h"

namespace longspan::support {

// `backend` must outlive it.
class ForwardingBackend : public ops::Backend {
 public:
  explicit ForwardingBackend(const ops::Backend& backend)
      : backend_(backend), ops_(backend.ops()) {}

  std::string_view name() const override { return backend_.name(); }
  const ops::OpTable& ops() const override { return ops_; }
  bool always_deterministic() const override { return backend_.always_deterministic(); }
  base::Status CheckTypes(tensor::DType compute, tensor::DType kv_cache) const override {
    return backend_.CheckTypes(compute, kv_cache);
  }
  base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const ops::QueueOptions& options) const override {
    return backend_.CreateQueue(options);
  }
  base::Result<tensor::Buffer> Allocate(int64_t bytes) const override {
    return backend_.Allocate(bytes);
  }
  int64_t AvailableBytes() const override { return backend_.AvailableBytes(); }
  int64_t WorkspaceBytes(const tensor::Queue& queue,
                         const ops::WorkspaceShape& shape) const override {
    return backend_.WorkspaceBytes(queue, shape);
  }
  base::Result<std::unique_ptr<ops::PackedWeight>> Pack(
      const ops::PackRequest& request) const override {
    return backend_.Pack(request);
  }
  base::Status Upload(tensor::Queue& queue, std::span<const std::byte> host,
                      tensor::View device) const override {
    return backend_.Upload(queue, host, device);
  }
  base::Status Download(tensor::Queue& queue, tensor::ConstView device,
                        std::span<std::byte> host) const override {
    return backend_.Download(queue, device, host);
  }

 protected:
  ops::OpTable& changed_ops() { return ops_; }

 private:
  const ops::Backend& backend_;
  ops::OpTable ops_;
};

}  // namespace longspan::support
