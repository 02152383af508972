// The safetensors format (https://github.com/huggingface/safetensors#format): eight bytes of header
// length, a JSON header, then the tensors without holes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/weight_source.h"
#include "tensor/view.h"

namespace longspan::checkpoint {

// The weights of a Hub folder: model.safetensors, or the shards that model.safetensors.index.json
// names. That every shard exists is checked at once; a shard is mapped and its header checked when
// the first of its tensors is read, so a rank touches only files that hold its tensors. NotFound
// where the folder, its weights or a shard is missing.
base::Result<std::unique_ptr<WeightSource>> OpenSafetensors(const std::filesystem::path& model_dir);

// One file, mapped read-only. The header is checked in full when it is opened: DataLoss says what
// is wrong with it. Thread-compatible; movable.
class SafetensorsFile {
 public:
  static base::Result<SafetensorsFile> Open(const std::filesystem::path& path);

  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;
  // In the order in which the tensors lie in the file.
  std::vector<std::string> names() const;
  bool Has(std::string_view name) const;

  // A tensor of any element type that tensor::DType has and of at most four dimensions (a scalar
  // counts as [1]); Unimplemented for others, which may be in the file as long as nobody reads
  // them. DataLoss where the file has changed its size since it was opened. The view is valid until
  // Release(name) or the file object's end.
  base::Result<tensor::ConstView> Read(std::string_view name);
  // The same, and InvalidArgument where it has another shape.
  base::Result<tensor::ConstView> Read(std::string_view name, std::span<const int64_t> shape);
  // A part of a matrix of that shape; the rows that it has no part in are not read.
  base::Result<tensor::ConstView> ReadWindow(std::string_view name, std::span<const int64_t> shape,
                                             const MatrixWindow& window);
  // Gives the tensor's memory back: drops the mapped pages that lie inside it.
  void Release(std::string_view name);

 private:
  class Contents;
  explicit SafetensorsFile(std::unique_ptr<Contents> contents);

  std::unique_ptr<Contents> contents_;
};

// A tensor to be written: contiguous, in host memory. Does not own the data.
struct NamedTensor {
  std::string name;
  tensor::ConstView view;
};

// Writes one file with all tensors; names are distinct. The bytes go to a temporary file in the
// same folder that takes the place of `path` at the end, so that a reader never sees half a file
// and a failure leaves what was there. InvalidArgument where `path` is something other than a file.
base::Status WriteSafetensors(const std::filesystem::path& path,
                              std::span<const NamedTensor> tensors);

}  // namespace longspan::checkpoint
