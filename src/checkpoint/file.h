// Files as the readers of this folder need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace longspan::checkpoint {

// A file mapped read-only. Owns the mapping; movable.
class MappedFile {
 public:
  // NotFound where there is no such file; InvalidArgument where it is a folder, a pipe or the like.
  static base::Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // DataLoss where the file's size is no longer the one it was mapped with: touching pages behind
  // its end would kill the process.
  base::Status CheckSize() const;
  // Starts reading a range ahead.
  void Prefetch(std::span<const std::byte> range) const;
  // Gives back the memory of the whole pages inside a range; touching them again reads the file.
  void Drop(std::span<const std::byte> range) const;

 private:
  MappedFile(std::string path, int descriptor, const std::byte* data, size_t size)
      : path_(std::move(path)), descriptor_(descriptor), data_(data), size_(size) {}

  std::string path_;
  int descriptor_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a small text file. NotFound where there is none; InvalidArgument where it is no file
// or larger than `max_bytes`.
base::Result<std::string> ReadTextFile(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace longspan::checkpoint
