#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include <fmt/format.h>

#include "checkpoint/json_object.h"
#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

namespace dom = simdjson::dom;

constexpr uint64_t kLengthBytes = sizeof(uint64_t);
// The limit of the format's own library.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct ElementType {
  std::string_view name;
  int64_t bytes;
  std::optional<tensor::DType> dtype;
};
constexpr std::array kElementTypes = {
    ElementType{"F32", 4, tensor::DType::kF32},
    ElementType{"BF16", 2, tensor::DType::kBf16},
    ElementType{"F16", 2, tensor::DType::kF16},
    ElementType{"I32", 4, tensor::DType::kI32},
    ElementType{"I64", 8, tensor::DType::kI64},
    ElementType{"U8", 1, tensor::DType::kU8},
    ElementType{"F8_E4M3", 1, tensor::DType::kF8E4M3},
    ElementType{"F8_E5M2", 1, std::nullopt},
    ElementType{"F8_E8M0", 1, std::nullopt},
    ElementType{"I8", 1, std::nullopt},
    ElementType{"BOOL", 1, std::nullopt},
    ElementType{"I16", 2, std::nullopt},
    ElementType{"U16", 2, std::nullopt},
    ElementType{"U32", 4, std::nullopt},
    ElementType{"U64", 8, std::nullopt},
    ElementType{"F64", 8, std::nullopt},
    ElementType{"C64", 8, std::nullopt},
};

const ElementType* FindType(std::string_view name) {
  const auto* found = std::ranges::find(kElementTypes, name, &ElementType::name);
  return found == kElementTypes.end() ? nullptr : found;
}

// The numbers of a list; nullopt where it is none or has a number that is negative or too large.
std::optional<std::vector<int64_t>> Naturals(dom::element value) {
  dom::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const dom::element entry : array) {
    int64_t number = 0;
    if (entry.get_int64().get(number) != simdjson::SUCCESS || number < 0) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

// The checks of one entry, with the tensor and the file as the subject of each message.
class EntryParser {
 public:
  EntryParser(std::string_view path, std::string_view name, uint64_t data_begin, uint64_t file_size)
      : subject_(fmt::format("{}: tensor {}", path, Quoted(name))),
        data_begin_(data_begin),
        data_size_(static_cast<int64_t>(file_size - data_begin)) {}

  base::Result<TensorEntry> Parse(dom::element value) const {
    TensorEntry entry;
    LONGSPAN_RETURN_IF_ERROR(ReadFields(value, entry));
    LONGSPAN_RETURN_IF_ERROR(CheckBytes(entry));
    entry.begin += static_cast<int64_t>(data_begin_);
    entry.end += static_cast<int64_t>(data_begin_);
    return entry;
  }

 private:
  // Begin and end count from the end of the header here.
  base::Status ReadFields(dom::element value, TensorEntry& entry) const {
    dom::object fields;
    if (value.get_object().get(fields) != simdjson::SUCCESS)
      return base::DataLoss("{} is described by {} where an object is needed", subject_,
                            DescribeJson(value));
    std::string_view dtype;
    if (fields.at_key("dtype").get_string().get(dtype) != simdjson::SUCCESS)
      return base::DataLoss("{} has no dtype", subject_);
    entry.dtype = dtype;
    dom::element list;
    if (fields.at_key("shape").get(list) != simdjson::SUCCESS)
      return base::DataLoss("{} has no shape", subject_);
    auto shape = Naturals(list);
    if (!shape) return base::DataLoss("{} has a shape that is no list of sizes", subject_);
    entry.shape = std::move(*shape);
    if (fields.at_key("data_offsets").get(list) != simdjson::SUCCESS)
      return base::DataLoss("{} has no data_offsets", subject_);
    const auto offsets = Naturals(list);
    if (!offsets || offsets->size() != 2)
      return base::DataLoss("{} has data_offsets that are no pair of positions", subject_);
    entry.begin = (*offsets)[0];
    entry.end = (*offsets)[1];
    return base::OkStatus();
  }

  base::Status CheckBytes(const TensorEntry& entry) const {
    if (entry.begin > entry.end)
      return base::DataLoss("{} ends at byte {}, before its begin at {}", subject_, entry.end,
                            entry.begin);
    if (entry.end > data_size_)
      return base::DataLoss(
          "{} ends at byte {} of the data, but the file has only {}: it is truncated", subject_,
          entry.end, data_size_);
    int64_t elements = 1;
    bool overflow = false;
    for (const int64_t size : entry.shape)
      overflow |= __builtin_mul_overflow(elements, size, &elements);
    const ElementType* type = FindType(entry.dtype);
    int64_t bytes = 0;
    overflow |= __builtin_mul_overflow(elements, type == nullptr ? 1 : type->bytes, &bytes);
    if (overflow)
      return base::DataLoss("{} has the shape [{}], which is too large", subject_,
                            fmt::join(entry.shape, ", "));
    if (type != nullptr && bytes != entry.end - entry.begin)
      return base::DataLoss("{} has {} bytes, but its shape [{}] of {} needs {}", subject_,
                            entry.end - entry.begin, fmt::join(entry.shape, ", "), entry.dtype,
                            bytes);
    return base::OkStatus();
  }

  std::string subject_;
  uint64_t data_begin_;
  int64_t data_size_;
};

// The tensors must cover [data_begin, file_size), each byte once.
base::Status CheckCover(const TensorIndex& index, std::string_view path, int64_t data_begin,
                        int64_t file_size) {
  std::vector<const TensorIndex::value_type*> order;
  for (const auto& item : index) order.push_back(&item);
  std::ranges::sort(
      order, {}, [](const auto* item) { return std::tuple(item->second.begin, item->second.end); });
  int64_t position = data_begin;
  const TensorIndex::value_type* previous = nullptr;
  for (const auto* item : order) {
    const auto& [name, entry] = *item;
    if (entry.begin < position)
      return base::DataLoss("{}: tensors {} and {} overlap", path, Quoted(previous->first),
                            Quoted(name));
    if (entry.begin > position)
      return base::DataLoss("{}: {} bytes before tensor {} belong to no tensor", path,
                            entry.begin - position, Quoted(name));
    position = entry.end;
    previous = item;
  }
  if (position != file_size)
    return base::DataLoss("{}: the last {} bytes belong to no tensor", path, file_size - position);
  return base::OkStatus();
}

base::Status CheckMetadata(dom::element value, std::string_view path) {
  dom::object members;
  if (value.get_object().get(members) != simdjson::SUCCESS)
    return base::DataLoss("{}: '__metadata__' must be an object, not {}", path,
                          DescribeJson(value));
  for (const dom::key_value_pair member : members) {
    if (!member.value.is_string())
      return base::DataLoss("{}: '__metadata__' must hold strings, but {} is {}", path,
                            Quoted(member.key), DescribeJson(member.value));
  }
  return base::OkStatus();
}

}  // namespace

base::Result<TensorIndex> ParseSafetensorsHeader(std::span<const std::byte> file,
                                                 std::string_view path) {
  if (file.size() < kLengthBytes)
    return base::DataLoss("{} has {} bytes, too few for a safetensors file", path, file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes)
    return base::DataLoss(
        "{} is not a safetensors file: its header would have {} bytes, more than the format allows",
        path, length);
  if (length > file.size() - kLengthBytes)
    return base::DataLoss("{} has a header of {} bytes, but only {} bytes follow: it is truncated",
                          path, length, file.size() - kLengthBytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject header,
                            ParseJsonObject(text, fmt::format("the header of {}", path)));
  const uint64_t data_begin = kLengthBytes + length;
  TensorIndex index;
  for (const dom::key_value_pair member : header.members) {
    if (member.key == "__metadata__") {
      LONGSPAN_RETURN_IF_ERROR(CheckMetadata(member.value, path));
      continue;
    }
    const EntryParser parser(path, member.key, data_begin, file.size());
    LONGSPAN_ASSIGN_OR_RETURN(TensorEntry entry, parser.Parse(member.value));
    index.emplace(member.key, std::move(entry));
  }
  LONGSPAN_RETURN_IF_ERROR(
      CheckCover(index, path, static_cast<int64_t>(data_begin), static_cast<int64_t>(file.size())));
  return index;
}

std::optional<tensor::DType> DTypeFromSafetensors(std::string_view name) {
  const ElementType* type = FindType(name);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::string_view SafetensorsName(tensor::DType dtype) {
  return std::ranges::find(kElementTypes, dtype, &ElementType::dtype)->name;
}

}  // namespace longspan::checkpoint
