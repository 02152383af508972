#include "spec/hardware.h"

#include <cmath>
#include <string_view>

namespace longspan::spec {
namespace {

base::Status CheckPositive(const HardwareSpec& hardware, std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return base::OkStatus();
  return base::InvalidArgument("hardware '{}': {} must be above 0, not {}", hardware.name, name,
                               value);
}

base::Status CheckShare(const HardwareSpec& hardware, std::string_view name, double value) {
  if (value > 0 && value <= 1) return base::OkStatus();
  return base::InvalidArgument(
      "hardware '{}': kernels.{} must be a share above 0 and at most 1, not {}", hardware.name,
      name, value);
}

base::Status CheckCost(const HardwareSpec& hardware, std::string_view name, double value) {
  if (std::isfinite(value) && value >= 0) return base::OkStatus();
  return base::InvalidArgument("hardware '{}': {} must be 0 or more, not {}", hardware.name, name,
                               value);
}

}  // namespace

base::Status CheckHardware(const HardwareSpec& hardware) {
  const KernelSpec& kernels = hardware.kernels;
  for (const auto& [name, value] :
       {std::pair<std::string_view, double>{"bf16_flops", hardware.bf16_flops},
        {"fp8_flops", hardware.fp8_flops},
        {"memory_bytes", hardware.memory_bytes},
        {"memory_bytes_per_s", hardware.memory_bytes_per_s},
        {"gpus_per_node", hardware.gpus_per_node},
        {"nvlink.bytes_per_s", hardware.nvlink.bytes_per_s},
        {"infiniband.bytes_per_s", hardware.infiniband.bytes_per_s},
        {"ethernet.bytes_per_s", hardware.ethernet.bytes_per_s}})
    LONGSPAN_RETURN_IF_ERROR(CheckPositive(hardware, name, value));
  for (const auto& [name, value] :
       {std::pair<std::string_view, double>{"bf16_products", kernels.bf16_products},
        {"fp8_products", kernels.fp8_products},
        {"attention", kernels.attention},
        {"sparse_attention", kernels.sparse_attention},
        {"index", kernels.index},
        {"memory", kernels.memory},
        {"links", kernels.links}})
    LONGSPAN_RETURN_IF_ERROR(CheckShare(hardware, name, value));
  for (const auto& [name, value] :
       {std::pair<std::string_view, double>{"nvlink.latency_s", hardware.nvlink.latency_s},
        {"infiniband.latency_s", hardware.infiniband.latency_s},
        {"ethernet.latency_s", hardware.ethernet.latency_s},
        {"kernels.half_rows", kernels.half_rows},
        {"kernels.launch_s", kernels.launch_s}})
    LONGSPAN_RETURN_IF_ERROR(CheckCost(hardware, name, value));
  return base::OkStatus();
}

}  // namespace longspan::spec
