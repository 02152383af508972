// What a cluster of GPUs can do, as plain values. Read from the files in hardware/ by sim/.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace longspan::spec {

// One way, of one GPU.
struct LinkSpec {
  double bytes_per_s = 0;
  double latency_s = 0;  // of a message, from call to arrival
};

// Which shares of a peak kernels reach, and what they cost besides. Where a share depends on the
// shape, it is the one of large shapes.
struct KernelSpec {
  double bf16_products = 1;     // of bf16_flops
  double fp8_products = 1;      // of fp8_flops
  double attention = 1;         // of bf16_flops: dense attention
  double sparse_attention = 1;  // of bf16_flops: attention to selected positions
  double index = 1;             // of fp8_flops: the indexer's products
  double memory = 1;            // of memory_bytes_per_s
  double links = 1;             // of a link's rate, in collective operations
  // A product over so many rows reaches half its share: rows / (rows + half_rows).
  double half_rows = 0;
  double launch_s = 0;  // that a kernel costs beside its work
};

struct HardwareSpec {
  std::string name;
  double bf16_flops = 0;  // a second, dense; a multiply-add is two
  double fp8_flops = 0;
  double memory_bytes = 0;
  double memory_bytes_per_s = 0;
  int gpus_per_node = 8;
  LinkSpec nvlink;      // between the GPUs of a node
  LinkSpec infiniband;  // between nodes
  LinkSpec ethernet;    // likewise, where there is no InfiniBand
  KernelSpec kernels;
};

// Refuses rates and sizes that are not above 0, shares outside (0, 1] and negative costs, by name.
base::Status CheckHardware(const HardwareSpec& hardware);

}  // namespace longspan::spec
