#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/dense_view.h"
#include "checkpoint/file.h"
#include "checkpoint/quoted.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"
#include "tensor/buffer.h"

namespace longspan::checkpoint {

class SafetensorsFile::Contents {
 public:
  Contents(MappedFile file, TensorIndex index) : file_(std::move(file)), index_(std::move(index)) {}

  const MappedFile& file() const { return file_; }
  const TensorIndex& index() const { return index_; }

  base::Result<const TensorEntry*> Find(std::string_view name) const {
    const auto found = index_.find(name);
    if (found == index_.end())
      return base::NotFound("{} has no tensor {}", file_.path(), Quoted(name));
    return &found->second;
  }

  // `rows` of its first dimension are read ahead.
  struct RowRange {
    int64_t begin = 0;
    int64_t end = 0;
  };
  base::Result<tensor::ConstView> View(std::string_view name, const TensorEntry& entry,
                                       std::optional<RowRange> rows = std::nullopt) {
    const auto dtype = DTypeFromSafetensors(entry.dtype);
    if (!dtype)
      return base::Unimplemented("{}: tensor {} has the element type {}, which is not supported",
                                 file_.path(), Quoted(name), Quoted(entry.dtype));
    if (entry.shape.size() > tensor::kMaxRank)
      return base::Unimplemented("{}: tensor {} has {} dimensions; at most {} are supported",
                                 file_.path(), Quoted(name), entry.shape.size(), tensor::kMaxRank);
    LONGSPAN_RETURN_IF_ERROR(file_.CheckSize());
    file_.Prefetch(rows ? RowBytesOf(entry, *rows) : BytesOf(entry));
    LONGSPAN_ASSIGN_OR_RETURN(const void* data, Aligned(name, entry, tensor::SizeOf(*dtype)));
    const std::vector<int64_t> scalar = {1};
    return DenseView(data, *dtype, entry.shape.empty() ? scalar : entry.shape);
  }

  base::Status CheckShape(std::string_view name, const TensorEntry& entry,
                          std::span<const int64_t> shape) const {
    const bool scalar = entry.shape.empty() && shape.size() == 1 && shape[0] == 1;
    if (scalar || std::ranges::equal(entry.shape, shape)) return base::OkStatus();
    return base::InvalidArgument("{}: tensor {} has the shape [{}], but the model needs [{}]",
                                 file_.path(), Quoted(name), fmt::join(entry.shape, ", "),
                                 fmt::join(shape, ", "));
  }

  void Release(std::string_view name) {
    if (const auto copy = copies_.find(name); copy != copies_.end()) copies_.erase(copy);
    if (const auto found = index_.find(name); found != index_.end())
      file_.Drop(BytesOf(found->second));
  }

 private:
  std::span<const std::byte> BytesOf(const TensorEntry& entry) const {
    return file_.bytes().subspan(static_cast<size_t>(entry.begin),
                                 static_cast<size_t>(entry.end - entry.begin));
  }

  std::span<const std::byte> RowBytesOf(const TensorEntry& entry, const RowRange& rows) const {
    const auto bytes = BytesOf(entry);
    const size_t row = bytes.size() / static_cast<size_t>(entry.shape[0]);
    return bytes.subspan(static_cast<size_t>(rows.begin) * row,
                         static_cast<size_t>(rows.end - rows.begin) * row);
  }

  // The tensor where it lies, or a copy of it: the format does not promise that a header's length
  // is a multiple of the elements' size.
  base::Result<const void*> Aligned(std::string_view name, const TensorEntry& entry,
                                    int64_t alignment) {
    const auto bytes = BytesOf(entry);
    if (entry.begin % alignment == 0) return bytes.data();
    auto copy = copies_.find(name);
    if (copy == copies_.end()) {
      LONGSPAN_ASSIGN_OR_RETURN(tensor::Buffer buffer,
                                tensor::AllocateHost(static_cast<int64_t>(bytes.size())));
      std::memcpy(buffer.data(), bytes.data(), bytes.size());
      copy = copies_.emplace(name, std::move(buffer)).first;
    }
    return copy->second.data();
  }

  MappedFile file_;
  TensorIndex index_;
  std::map<std::string, tensor::Buffer, std::less<>> copies_;
};

base::Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  LONGSPAN_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  LONGSPAN_ASSIGN_OR_RETURN(TensorIndex index, ParseSafetensorsHeader(file.bytes(), file.path()));
  return SafetensorsFile(std::make_unique<Contents>(std::move(file), std::move(index)));
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Contents> contents)
    : contents_(std::move(contents)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return contents_->file().path(); }

std::vector<std::string> SafetensorsFile::names() const {
  const TensorIndex& index = contents_->index();
  std::vector<std::string> names;
  for (const auto& [name, entry] : index) names.push_back(name);
  std::ranges::stable_sort(names, {},
                           [&](const std::string& name) { return index.find(name)->second.begin; });
  return names;
}

bool SafetensorsFile::Has(std::string_view name) const { return contents_->index().contains(name); }

base::Result<tensor::ConstView> SafetensorsFile::Read(std::string_view name) {
  LONGSPAN_ASSIGN_OR_RETURN(const TensorEntry* entry, contents_->Find(name));
  return contents_->View(name, *entry);
}

base::Result<tensor::ConstView> SafetensorsFile::Read(std::string_view name,
                                                      std::span<const int64_t> shape) {
  LONGSPAN_ASSIGN_OR_RETURN(const TensorEntry* entry, contents_->Find(name));
  LONGSPAN_RETURN_IF_ERROR(contents_->CheckShape(name, *entry, shape));
  return contents_->View(name, *entry);
}

base::Result<tensor::ConstView> SafetensorsFile::ReadWindow(std::string_view name,
                                                            std::span<const int64_t> shape,
                                                            const MatrixWindow& window) {
  LONGSPAN_ASSIGN_OR_RETURN(const TensorEntry* entry, contents_->Find(name));
  LONGSPAN_RETURN_IF_ERROR(contents_->CheckShape(name, *entry, shape));
  LONGSPAN_ASSIGN_OR_RETURN(
      const tensor::ConstView matrix,
      contents_->View(name, *entry,
                      Contents::RowRange{window.row_begin, window.row_begin + window.rows}));
  return window.Of(matrix);
}

void SafetensorsFile::Release(std::string_view name) { contents_->Release(name); }

}  // namespace longspan::checkpoint
