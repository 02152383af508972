#include "sim/hardware_file.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "checkpoint/json_fields.h"

namespace longspan::sim {
namespace {

namespace fs = std::filesystem;
using checkpoint::JsonFields;

constexpr std::string_view kSuffix = ".json";

base::Result<JsonFields> RequiredSection(const JsonFields& fields, std::string_view key) {
  LONGSPAN_ASSIGN_OR_RETURN(auto section, fields.Section(key));
  if (section) return std::move(*section);
  return base::InvalidArgument("{}is missing; it must be an object", fields.Describe(key));
}

struct Figure {
  std::string_view key;
  double* value;
};

base::Status ReadFigures(const JsonFields& fields, std::initializer_list<Figure> figures) {
  for (const auto& [key, value] : figures) {
    LONGSPAN_ASSIGN_OR_RETURN(const JsonFields figure, RequiredSection(fields, key));
    LONGSPAN_ASSIGN_OR_RETURN(*value, figure.Double("value"));
    LONGSPAN_ASSIGN_OR_RETURN(const std::string source, figure.String("source"));
    if (source.empty())
      return base::InvalidArgument("{}must say where the figure is from",
                                   figure.Describe("source"));
  }
  return base::OkStatus();
}

base::Status ReadLink(const JsonFields& fields, std::string_view key, spec::LinkSpec& link) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonFields section, RequiredSection(fields, key));
  return ReadFigures(section, {{"bytes_per_s", &link.bytes_per_s}, {"latency_s", &link.latency_s}});
}

base::Status ReadKernels(const JsonFields& fields, spec::KernelSpec& kernels) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonFields section, RequiredSection(fields, "kernels"));
  return ReadFigures(section, {{"bf16_products", &kernels.bf16_products},
                               {"fp8_products", &kernels.fp8_products},
                               {"attention", &kernels.attention},
                               {"sparse_attention", &kernels.sparse_attention},
                               {"index", &kernels.index},
                               {"memory", &kernels.memory},
                               {"links", &kernels.links},
                               {"half_rows", &kernels.half_rows},
                               {"launch_s", &kernels.launch_s}});
}

base::Result<spec::HardwareSpec> ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return base::NotFound("cannot read the hardware profile '{}'", path.string());
  return ParseHardware(text, path.string());
}

std::vector<std::string> NamesIn(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::path& folder : folders)
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
      if (entry.path().extension() == kSuffix) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

base::Result<spec::HardwareSpec> ParseHardware(std::string_view json, const std::string& where) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Parse(json, where));
  spec::HardwareSpec hardware;
  LONGSPAN_ASSIGN_OR_RETURN(hardware.name, fields.String("name"));
  double gpus = 0;
  LONGSPAN_RETURN_IF_ERROR(
      ReadFigures(fields, {{"bf16_flops", &hardware.bf16_flops},
                           {"fp8_flops", &hardware.fp8_flops},
                           {"memory_bytes", &hardware.memory_bytes},
                           {"memory_bytes_per_s", &hardware.memory_bytes_per_s},
                           {"gpus_per_node", &gpus}}));
  hardware.gpus_per_node = gpus >= 1 && gpus <= 1024 ? static_cast<int>(gpus) : 0;
  LONGSPAN_RETURN_IF_ERROR(ReadLink(fields, "nvlink", hardware.nvlink));
  LONGSPAN_RETURN_IF_ERROR(ReadLink(fields, "infiniband", hardware.infiniband));
  LONGSPAN_RETURN_IF_ERROR(ReadLink(fields, "ethernet", hardware.ethernet));
  LONGSPAN_RETURN_IF_ERROR(ReadKernels(fields, hardware.kernels));
  if (base::Status status = spec::CheckHardware(hardware); !status.ok())
    return status.WithContext(where);
  return hardware;
}

base::Result<spec::HardwareSpec> LoadHardware(const std::string& given,
                                              const std::vector<fs::path>& folders) {
  if (given.find('/') != std::string::npos || given.ends_with(kSuffix)) return ReadFile(given);
  std::error_code error;
  for (const fs::path& folder : folders) {
    const fs::path path = folder / (given + std::string(kSuffix));
    if (fs::is_regular_file(path, error)) return ReadFile(path);
  }
  return base::NotFound("there is no hardware profile '{}': take one of {}, or name a file", given,
                        fmt::join(NamesIn(folders), ", "));
}

}  // namespace longspan::sim
