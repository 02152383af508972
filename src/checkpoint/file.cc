#include "checkpoint/file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(other.Take()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  int value() const { return value_; }
  int Take() { return std::exchange(value_, -1); }

 private:
  int value_;
};

struct OpenedFile {
  Descriptor descriptor;
  int64_t size = 0;
};

base::Result<OpenedFile> OpenRegular(const std::string& path) {
  // A pipe in the place of a file must not block the open.
  Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.value() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return base::NotFound("there is no file {}", path);
    return base::SystemError(errno, "open " + path);
  }
  struct stat info {};
  if (fstat(descriptor.value(), &info) != 0) return base::SystemError(errno, "examine " + path);
  if (!S_ISREG(info.st_mode)) return base::InvalidArgument("{} is not a file", path);
  return OpenedFile{std::move(descriptor), info.st_size};
}

}  // namespace

base::Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  const std::string& name = path.native();
  LONGSPAN_ASSIGN_OR_RETURN(OpenedFile file, OpenRegular(name));
  const auto size = static_cast<size_t>(file.size);
  if (size == 0) return MappedFile(name, file.descriptor.Take(), nullptr, 0);
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor.value(), 0);
  if (data == MAP_FAILED) return base::SystemError(errno, "map " + name);
  return MappedFile(name, file.descriptor.Take(), static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) close(descriptor_);
}

base::Status MappedFile::CheckSize() const {
  struct stat info {};
  if (fstat(descriptor_, &info) != 0) return base::SystemError(errno, "examine " + path_);
  if (static_cast<size_t>(info.st_size) != size_)
    return base::DataLoss("{} has changed from {} to {} bytes while it was being read", path_,
                          size_, info.st_size);
  return base::OkStatus();
}

void MappedFile::Prefetch(std::span<const std::byte> range) const {
  // The mapping starts at a page, so rounding its offsets down gives pages.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = static_cast<size_t>(range.data() - data_) / page * page;
  const size_t end = static_cast<size_t>(range.data() - data_) + range.size();
  madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
}

void MappedFile::Drop(std::span<const std::byte> range) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(range.data() - data_);
  const size_t begin = (offset + page - 1) / page * page;
  // The file's last page belongs to its last tensor alone.
  const size_t end = offset + range.size() == size_ ? size_ : (offset + range.size()) / page * page;
  if (begin < end) madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

base::Result<std::string> ReadTextFile(const std::filesystem::path& path, int64_t max_bytes) {
  const std::string& name = path.native();
  LONGSPAN_ASSIGN_OR_RETURN(OpenedFile file, OpenRegular(name));
  if (file.size > max_bytes)
    return base::InvalidArgument("{} has {} bytes; such a file has at most {}", name, file.size,
                                 max_bytes);
  std::string text(static_cast<size_t>(file.size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = read(file.descriptor.value(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return base::SystemError(errno, "read " + name);
    if (count == 0) return base::DataLoss("{} has become shorter while it was being read", name);
    done += static_cast<size_t>(count);
  }
  return text;
}

}  // namespace longspan::checkpoint
