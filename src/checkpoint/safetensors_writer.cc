#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_header.h"

namespace longspan::checkpoint {
namespace {

// A file that vanishes unless it is given its final name.
class TemporaryFile {
 public:
  static base::Result<TemporaryFile> CreateBeside(const std::string& path) {
    std::string name = fmt::format("{}.{}.tmp", path, getpid());
    const int descriptor = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) return base::SystemError(errno, "create " + name);
    return TemporaryFile(std::move(name), descriptor);
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : name_(std::exchange(other.name_, {})), descriptor_(std::exchange(other.descriptor_, -1)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }

  base::Status Write(const void* data, int64_t size) {
    const auto* position = static_cast<const std::byte*>(data);
    while (size > 0) {
      const ssize_t count = write(descriptor_, position, static_cast<size_t>(size));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return base::SystemError(errno, "write " + name_);
      position += count;
      size -= count;
    }
    return base::OkStatus();
  }

  base::Status RenameTo(const std::string& path) {
    if (close(std::exchange(descriptor_, -1)) != 0 || std::rename(name_.c_str(), path.c_str()) != 0)
      return base::SystemError(errno, "write " + path);
    name_.clear();
    return base::OkStatus();
  }

 private:
  TemporaryFile(std::string name, int descriptor)
      : name_(std::move(name)), descriptor_(descriptor) {}

  std::string name_;
  int descriptor_;
};

// The eight bytes of length and the header, padded so that the tensors start aligned.
std::string MakeHeader(std::span<const NamedTensor* const> tensors) {
  auto header = nlohmann::ordered_json::object();
  int64_t position = 0;
  for (const NamedTensor* tensor : tensors) {
    const tensor::ConstView& view = tensor->view;
    std::vector<int64_t> shape(static_cast<size_t>(view.rank()));
    for (int i = 0; i < view.rank(); ++i) shape[static_cast<size_t>(i)] = view.size(i);
    LONGSPAN_CHECK(!header.contains(tensor->name), "two tensors are called {}", tensor->name);
    header[tensor->name] = {{"dtype", SafetensorsName(view.dtype())},
                            {"shape", shape},
                            {"data_offsets", {position, position + view.bytes()}}};
    position += view.bytes();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  base::ByteWriter length;
  length.Write<uint64_t>(text.size());
  return std::string(reinterpret_cast<const char*>(length.bytes().data()), sizeof(uint64_t)) + text;
}

}  // namespace

base::Status WriteSafetensors(const std::filesystem::path& path,
                              std::span<const NamedTensor> tensors) {
  // The widest elements first, so that each tensor starts aligned.
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) {
    LONGSPAN_CHECK(tensor.view.rank() > 0 && tensor.view.contiguous(), "{} is not contiguous",
                   tensor.name);
    order.push_back(&tensor);
  }
  std::ranges::stable_sort(order, std::greater<>(), [](const NamedTensor* tensor) {
    return tensor::SizeOf(tensor->view.dtype());
  });

  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return base::InvalidArgument("{} is not a file", path.native());
  LONGSPAN_ASSIGN_OR_RETURN(TemporaryFile file, TemporaryFile::CreateBeside(path.native()));
  const std::string header = MakeHeader(order);
  LONGSPAN_RETURN_IF_ERROR(file.Write(header.data(), static_cast<int64_t>(header.size())));
  for (const NamedTensor* tensor : order)
    LONGSPAN_RETURN_IF_ERROR(file.Write(tensor->view.raw(), tensor->view.bytes()));
  return file.RenameTo(path.native());
}

}  // namespace longspan::checkpoint
