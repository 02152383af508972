// Files and folders that the tests of this folder make.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace longspan::checkpoint {

// A folder that vanishes with the object.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "checkpoint_test.XXXXXX").native();
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::filesystem::path Path(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(std::string_view name, std::string_view bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The bytes of a safetensors file with this header and this many bytes of data: 0, 1, 2, ...
inline std::string SafetensorsBytes(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

// Expects one sentence for the user: not empty, one line, no full stop, with `part` in it.
inline void ExpectSentence(const base::Status& status, base::StatusCode code,
                           std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), testing::HasSubstr(std::string(part)));
  EXPECT_THAT(status.message(),
              testing::Not(testing::AnyOf(testing::HasSubstr("\n"), testing::EndsWith("."))));
}

inline std::filesystem::path SourcePath(std::string_view path) {
  return std::filesystem::path(LONGSPAN_SOURCE_DIR) / path;
}

}  // namespace longspan::checkpoint
