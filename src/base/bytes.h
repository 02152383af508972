// Little-endian reading and writing of binary forms: wire messages and file headers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace longspan::base {

static_assert(std::endian::native == std::endian::little,
              "binary forms are little-endian and written as they lie in memory");

// What is written as it lies in memory: one number or enum, and the elements of a vector.
template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;
template <typename T>
concept PlainBytes = std::is_trivially_copyable_v<T>;

// Appends values to a growing byte string. Owns the bytes until Take().
class ByteWriter {
 public:
  template <Scalar T>
  void Write(T value) {
    Append(&value, sizeof(value));
  }
  // A 32-bit length, then the bytes.
  void WriteString(std::string_view text) {
    Write<uint32_t>(static_cast<uint32_t>(text.size()));
    Append(text.data(), text.size());
  }
  // A 32-bit count, then the elements.
  template <PlainBytes T>
  void WriteVector(std::span<const T> values) {
    Write<uint32_t>(static_cast<uint32_t>(values.size()));
    Append(values.data(), values.size_bytes());
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  void Append(const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<std::byte> bytes_;
};

// Reads what ByteWriter wrote. The first read past the end, or of a count that cannot fit in what
// is left, makes the reader fail for good: later reads give zeros and empty values, and status() is
// DataLoss. So a decoder reads everything and checks once. Does not own the bytes.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <Scalar T>
  T Read() {
    T value{};
    Copy(&value, sizeof(value));
    return value;
  }
  std::string ReadString() {
    const auto size = Read<uint32_t>();
    if (!Fits(size)) return {};
    std::string text(size, '\0');
    Copy(text.data(), size);
    return text;
  }
  template <PlainBytes T>
  std::vector<T> ReadVector() {
    const auto count = Read<uint32_t>();
    if (!Fits(uint64_t{count} * sizeof(T))) return {};
    std::vector<T> values(count);
    Copy(values.data(), values.size() * sizeof(T));
    return values;
  }
  // A 32-bit count of records of at least `record_bytes` each; 0 and failure where they cannot fit.
  uint32_t ReadCount(size_t record_bytes) {
    const auto count = Read<uint32_t>();
    return Fits(uint64_t{count} * record_bytes) ? count : 0;
  }

  // Ok while every read so far was inside the bytes.
  Status status() const {
    return failed_ ? DataLoss("a message of {} bytes ends too early", bytes_.size()) : OkStatus();
  }
  // Ok when, besides, all bytes were read.
  Status Finish() const {
    if (!failed_ && position_ != bytes_.size())
      return DataLoss("a message has {} bytes too many", bytes_.size() - position_);
    return status();
  }

 private:
  bool Fits(uint64_t size) {
    if (size > bytes_.size() - position_) failed_ = true;
    return !failed_;
  }
  void Copy(void* target, size_t size) {
    if (!Fits(size) || size == 0) return;
    std::memcpy(target, bytes_.data() + position_, size);
    position_ += size;
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  bool failed_ = false;
};

}  // namespace longspan::base
