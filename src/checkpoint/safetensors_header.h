// The index at the head of a safetensors file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace longspan::checkpoint {

// What the header says about one tensor. An element type that this program has no use for keeps its
// name, so that a file may carry such tensors as long as nobody reads them.
struct TensorEntry {
  std::string dtype;           // as it is written: "BF16"
  std::vector<int64_t> shape;  // of any rank; a product that fits 63 bits
  int64_t begin = 0;           // bytes from the file's start
  int64_t end = 0;
};

using TensorIndex = std::map<std::string, TensorEntry, std::less<>>;

// Checks everything that can be checked without reading the tensors: the header's length, its JSON,
// each entry's keys, that its bytes are those of its shape, and that all tensors together cover the
// rest of the file, each byte once. `path` is for messages. DataLoss otherwise.
base::Result<TensorIndex> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                 std::string_view path);

// The element type by its name in the format; nullopt for those that tensor::DType lacks.
std::optional<tensor::DType> DTypeFromSafetensors(std::string_view name);
// The other way round.
std::string_view SafetensorsName(tensor::DType dtype);

}  // namespace longspan::checkpoint
