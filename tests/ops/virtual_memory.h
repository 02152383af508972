// Host memory that is reserved and not touched: tensors beyond 2^32 elements for the price of the
// few rows that are written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tests/ops/compare.h"

namespace longspan::op_suite {

// Zeros. Ends the test program where the system refuses so much address space.
class VirtualMemory {
 public:
  explicit VirtualMemory(int64_t bytes);
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  // A dense view that begins at `offset` bytes; it must lie inside.
  View At(int64_t offset, DType type, std::initializer_list<int64_t> sizes) const;

 private:
  std::byte* data_;
  int64_t bytes_;
};

// Writes `values` into a dense view of f32 or bf16.
void Store(TestDevice& device, std::span<const float> values, const View& view);

// Between two rows, in elements. Cut to 32 bits, or times the size of an element and then cut, it
// is another place of the reservation, where nothing is.
constexpr int64_t kFarStride = (int64_t{1} << 31) + (int64_t{1} << 20);

// The arguments of an op on a host backend: matrices [rows, columns] and [rows, heads, dim] that
// are dense, or whose innermost rows lie kFarStride apart. These share one reservation, a piece of
// every row for each.
class Arguments {
 public:
  enum class Rows { kDense, kFar };

  Arguments(TestDevice& device, Rows rows);

  bool far() const { return memory_ != nullptr; }
  TestDevice& device() { return device_; }

  using Sizes = std::vector<int64_t>;
  View Floats(std::span<const float> values, DType type, const Sizes& sizes);
  View Ints(std::span<const int32_t> values, const Sizes& sizes);
  // To be written: holds a mark everywhere.
  View Out(DType type, const Sizes& sizes);

  std::vector<float> ReadFloats(const ConstView& view);
  std::vector<int32_t> ReadInts(const ConstView& view);

 private:
  View Place(DType type, const Sizes& sizes);

  TestDevice& device_;
  std::unique_ptr<VirtualMemory> memory_;  // null: dense
  int64_t placed_ = 0;
};

// run(arguments) returns what an op wrote; it must be the same bits wherever the rows lie.
template <typename Run>
void ExpectSameBits(const BackendCase& c, const ops::WorkspaceShape& shape, const Run& run) {
  TestDevice device(*c.backend, 2, shape);
  Arguments dense(device, Arguments::Rows::kDense);
  Arguments far(device, Arguments::Rows::kFar);
  const std::vector<float> want = run(dense);
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(run(far), want);
}

}  // namespace longspan::op_suite
