#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/file.h"
#include "checkpoint/json_object.h"
#include "checkpoint/quoted.h"
#include "checkpoint/safetensors.h"

namespace longspan::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 256 << 20;

// Reads a weight out of a file, or a part of one, and nothing that is not a weight.
base::Result<tensor::ConstView> ReadWeight(SafetensorsFile& file, std::string_view name,
                                           std::span<const int64_t> shape,
                                           const MatrixWindow* window) {
  LONGSPAN_ASSIGN_OR_RETURN(
      const tensor::ConstView view,
      window == nullptr ? file.Read(name, shape) : file.ReadWindow(name, shape, *window));
  switch (view.dtype()) {
    case tensor::DType::kBf16:
    case tensor::DType::kF16:
    case tensor::DType::kF32:
    case tensor::DType::kF8E4M3:
      return view;
    default:
      return base::Unimplemented(
          "{}: tensor {} has the element type {}; weights are bf16, f16, f32 or f8_e4m3",
          file.path(), Quoted(name), tensor::DTypeName(view.dtype()));
  }
}

class SingleFileSource : public WeightSource {
 public:
  explicit SingleFileSource(SafetensorsFile file) : file_(std::move(file)) {}

  bool Has(std::string_view name) const override { return file_.Has(name); }
  base::Result<tensor::ConstView> Read(std::string_view name,
                                       std::span<const int64_t> shape) override {
    return ReadPart(name, shape, nullptr);
  }
  base::Result<tensor::ConstView> ReadWindow(std::string_view name, std::span<const int64_t> shape,
                                             const MatrixWindow& window) override {
    return ReadPart(name, shape, &window);
  }
  void Release(std::string_view name) override { file_.Release(name); }
  int64_t bytes_read() const override { return bytes_read_; }

 private:
  base::Result<tensor::ConstView> ReadPart(std::string_view name, std::span<const int64_t> shape,
                                           const MatrixWindow* window) {
    LONGSPAN_ASSIGN_OR_RETURN(const tensor::ConstView view, ReadWeight(file_, name, shape, window));
    bytes_read_ += view.bytes();
    return view;
  }

  SafetensorsFile file_;
  int64_t bytes_read_ = 0;
};

// A shard's path and, once a tensor of it was read, its file.
struct Shard {
  fs::path path;
  std::optional<SafetensorsFile> file;
};

class ShardedSource : public WeightSource {
 public:
  static base::Result<std::unique_ptr<WeightSource>> Open(const fs::path& model_dir,
                                                          const fs::path& index_path);

  bool Has(std::string_view name) const override { return shard_of_.contains(name); }
  base::Result<tensor::ConstView> Read(std::string_view name,
                                       std::span<const int64_t> shape) override {
    return ReadPart(name, shape, nullptr);
  }
  base::Result<tensor::ConstView> ReadWindow(std::string_view name, std::span<const int64_t> shape,
                                             const MatrixWindow& window) override {
    return ReadPart(name, shape, &window);
  }
  void Release(std::string_view name) override {
    const auto found = shard_of_.find(name);
    if (found != shard_of_.end() && found->second->file) found->second->file->Release(name);
  }
  int64_t bytes_read() const override { return bytes_read_; }

 private:
  explicit ShardedSource(std::string index_path) : index_path_(std::move(index_path)) {}
  // `window` may be null: all of it.
  base::Result<tensor::ConstView> ReadPart(std::string_view name, std::span<const int64_t> shape,
                                           const MatrixWindow* window);
  base::Status AddTensor(std::string_view name, simdjson::dom::element file,
                         const fs::path& model_dir);

  std::string index_path_;
  std::map<std::string, Shard, std::less<>> shards_;     // by file name
  std::map<std::string, Shard*, std::less<>> shard_of_;  // by tensor
  int64_t bytes_read_ = 0;
};

base::Status ShardedSource::AddTensor(std::string_view name, simdjson::dom::element file,
                                      const fs::path& model_dir) {
  std::string_view file_name;
  if (file.get_string().get(file_name) != simdjson::SUCCESS)
    return base::DataLoss("{}: 'weight_map' names {} as the file of tensor {}", index_path_,
                          DescribeJson(file), Quoted(name));
  auto shard = shards_.find(file_name);
  if (shard == shards_.end()) {
    const bool leaves = file_name.empty() || file_name == "." || file_name == ".." ||
                        file_name.find_first_of(std::string_view("/\\\0", 3)) != file_name.npos;
    if (leaves)
      return base::DataLoss("{}: tensor {} is in {}, which is not a file beside the index",
                            index_path_, Quoted(name), Quoted(file_name));
    fs::path path = model_dir / file_name;
    std::error_code error;
    if (!fs::is_regular_file(path, error))
      return base::NotFound("{} names the file {}, which is missing", index_path_,
                            Quoted(file_name));
    shard = shards_.emplace(file_name, Shard{std::move(path), std::nullopt}).first;
  }
  shard_of_.emplace(name, &shard->second);
  return base::OkStatus();
}

base::Result<std::unique_ptr<WeightSource>> ShardedSource::Open(const fs::path& model_dir,
                                                                const fs::path& index_path) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path, kMaxIndexBytes));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject index, ParseJsonObject(text, index_path.native()));
  simdjson::dom::object weight_map;
  if (index.members.at_key("weight_map").get_object().get(weight_map) != simdjson::SUCCESS)
    return base::DataLoss("{} has no object 'weight_map'", index_path.native());
  std::unique_ptr<ShardedSource> source(new ShardedSource(index_path.native()));
  for (const simdjson::dom::key_value_pair member : weight_map)
    LONGSPAN_RETURN_IF_ERROR(source->AddTensor(member.key, member.value, model_dir));
  return std::unique_ptr<WeightSource>(std::move(source));
}

base::Result<tensor::ConstView> ShardedSource::ReadPart(std::string_view name,
                                                        std::span<const int64_t> shape,
                                                        const MatrixWindow* window) {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end())
    return base::NotFound("{} has no tensor {}", index_path_, Quoted(name));
  Shard& shard = *found->second;
  if (!shard.file) {
    LONGSPAN_ASSIGN_OR_RETURN(shard.file, SafetensorsFile::Open(shard.path));
  }
  if (!shard.file->Has(name))
    return base::DataLoss("{} has no tensor {}, though {} says so", shard.path.native(),
                          Quoted(name), kIndexFile);
  LONGSPAN_ASSIGN_OR_RETURN(const tensor::ConstView view,
                            ReadWeight(*shard.file, name, shape, window));
  bytes_read_ += view.bytes();
  return view;
}

}  // namespace

base::Result<std::unique_ptr<WeightSource>> OpenSafetensors(const fs::path& model_dir) {
  std::error_code error;
  if (!fs::is_directory(model_dir, error))
    return base::NotFound("there is no model folder {}", model_dir.native());
  const fs::path single = model_dir / kSingleFile;
  if (fs::exists(single, error)) {
    LONGSPAN_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(single));
    return std::unique_ptr<WeightSource>(std::make_unique<SingleFileSource>(std::move(file)));
  }
  const fs::path index = model_dir / kIndexFile;
  if (fs::exists(index, error)) return ShardedSource::Open(model_dir, index);
  return base::NotFound("{} has neither {} nor {}: weights must be in the safetensors format",
                        model_dir.native(), kSingleFile, kIndexFile);
}

}  // namespace longspan::checkpoint
