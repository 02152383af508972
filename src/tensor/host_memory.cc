#include "tensor/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

namespace longspan::tensor {
namespace {

namespace fs = std::filesystem;

// The number behind `key` in a file of lines "key number ...".
std::optional<int64_t> ReadField(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    char* end = nullptr;
    const char* digits = line.c_str() + key.size();
    const int64_t value = std::strtoll(digits, &end, 10);
    if (end != digits) return value;
  }
  return std::nullopt;
}

// The names that the two versions of control groups give to the same three things.
struct GroupFiles {
  std::string_view mount;
  std::string_view limit;
  std::string_view usage;
  std::string_view droppable;  // key in memory.stat: page cache that goes first
};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current",
                                  "inactive_file "};
constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_inactive_file "};

// What is left under the tightest limit from the group up to the root of the hierarchy. Inside a
// container the group's own path may be hidden and its files stand at the root.
int64_t AvailableInGroup(const fs::path& root, const GroupFiles& files, std::string_view group) {
  int64_t available = std::numeric_limits<int64_t>::max();
  const fs::path mount = root / files.mount;
  for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
    const fs::path folder = mount / path;
    // An empty key reads the number of a one-line file; "max" is no number, and no limit.
    const auto limit = ReadField(folder / files.limit, "");
    const auto usage = ReadField(folder / files.usage, "");
    if (limit && usage) {
      const int64_t droppable = ReadField(folder / "memory.stat", files.droppable).value_or(0);
      available = std::min(available, std::max<int64_t>(0, *limit - *usage + droppable));
    }
    if (path.empty()) return available;
  }
}

// Lines are "id:controllers:path"; version 2 has id 0 and no controllers.
int64_t AvailableInGroups(const fs::path& root) {
  int64_t available = std::numeric_limits<int64_t>::max();
  std::ifstream in(root / "proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string group = line.substr(second + 1);
    if (line.starts_with("0::"))
      available = std::min(available, AvailableInGroup(root, kVersion2, group));
    else if (controllers.find(",memory,") != std::string::npos)
      available = std::min(available, AvailableInGroup(root, kVersion1, group));
  }
  return available;
}

}  // namespace

int64_t AvailableHostBytes() { return AvailableHostBytes("/"); }

int64_t AvailableHostBytes(const fs::path& root) {
  const auto kibibytes = ReadField(root / "proc/meminfo", "MemAvailable:");
  const int64_t machine =
      kibibytes ? *kibibytes * 1024 : int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, AvailableInGroups(root));
}

base::Status CopyIn(std::span<const std::byte> bytes, const View& tensor) {
  if (!tensor.contiguous() || static_cast<int64_t>(bytes.size()) != tensor.bytes())
    return base::InvalidArgument("cannot copy {} bytes into a tensor of {}{}", bytes.size(),
                                 tensor.bytes(), tensor.contiguous() ? "" : " with gaps");
  if (!bytes.empty()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return base::OkStatus();
}

base::Status CopyOut(const ConstView& tensor, std::span<std::byte> bytes) {
  if (!tensor.contiguous() || static_cast<int64_t>(bytes.size()) != tensor.bytes())
    return base::InvalidArgument("cannot copy a tensor of {}{} into {} bytes", tensor.bytes(),
                                 tensor.contiguous() ? "" : " with gaps", bytes.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), tensor.raw(), bytes.size());
  return base::OkStatus();
}

void WidenRow(const ConstView& matrix, int64_t row, float* out) {
  const int64_t columns = matrix.size(1);
  const int64_t begin = row * matrix.stride(0);
  switch (matrix.dtype()) {
    case DType::kF32:
      std::copy_n(matrix.data<float>() + begin, columns, out);
      return;
    case DType::kBf16:
      std::transform(matrix.data<Bf16>() + begin, matrix.data<Bf16>() + begin + columns, out,
                     [](Bf16 value) { return ToFloat(value); });
      return;
    case DType::kF16: {
      // g++ 12 has no type for it in C++20; the views hold its bits.
      const auto* bits = static_cast<const uint16_t*>(matrix.raw()) + begin;
      std::transform(bits, bits + columns, out, HalfToFloat);
      return;
    }
    default:
      LONGSPAN_CHECK(false, "a matrix of {} cannot be widened", DTypeName(matrix.dtype()));
  }
}

}  // namespace longspan::tensor
