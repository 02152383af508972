// The device's tables of what context-parallel ranks exchange in a step.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/step.h"
#include "ops/backend.h"
#include "runtime/step_tables.h"
#include "tensor/tensor.h"

namespace longspan::runtime {

// Allocated once for the largest step.
class GatherTables {
 public:
  struct Limits {
    int64_t own_rows = 0;
    int64_t all_rows = 0;
    int64_t all_slices = 0;  // of the steps of all ranks together; 0: every rank has the cache
    int64_t pages_per_sequence = 0;
  };
  static base::Result<GatherTables> Create(const ops::Backend& backend, const Limits& limits);

  // Of `rank`, one of several. Valid until the next Upload, and as long as `tables`.
  base::Result<model::GatheredRows> Upload(tensor::Queue& queue, const HostTables& tables,
                                           int rank);

  int64_t bytes() const;

 private:
  explicit GatherTables(const ops::Backend& backend) : backend_(&backend) {}

  base::Result<tensor::View> Copy(tensor::Queue& queue, const std::vector<int64_t>& values,
                                  const tensor::Buffer& buffer) const;
  base::Status AddSharded(tensor::Queue& queue, const ShardedTables& tables,
                          model::GatheredRows& gathered);

  const ops::Backend* backend_;
  tensor::Buffer own_places_;
  tensor::Buffer slots_;
  tensor::Buffer owner_places_;
  tensor::Buffer page_indices_;
  std::optional<DeviceTables> all_;
};

}  // namespace longspan::runtime
