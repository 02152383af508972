#include "tests/ops/virtual_memory.h"

#include <algorithm>
#include <sys/mman.h>
#include <type_traits>

namespace longspan::op_suite {

using tensor::Bf16;

VirtualMemory::VirtualMemory(int64_t bytes) : bytes_(bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LONGSPAN_CHECK(data != MAP_FAILED,
                 "this test needs {} GiB of address space (and touches a few MiB of it) and the "
                 "system refuses: raise ulimit -v, or set vm.overcommit_memory to 0 or 1",
                 bytes >> 30);
  // A touched page stays a small one.
  madvise(data, static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
  data_ = static_cast<std::byte*>(data);
}

VirtualMemory::~VirtualMemory() { munmap(data_, static_cast<size_t>(bytes_)); }

View VirtualMemory::At(int64_t offset, DType type, std::initializer_list<int64_t> sizes) const {
  const View view(data_ + offset, type, sizes);
  LONGSPAN_CHECK(offset >= 0 && offset + view.bytes() <= bytes_, "{} bytes at {} of {}",
                 view.bytes(), offset, bytes_);
  return view;
}

namespace {

template <typename T>
void Upload(TestDevice& device, std::span<const T> values, const View& view) {
  const base::Status status = device.backend().Upload(device.queue(), std::as_bytes(values), view);
  LONGSPAN_CHECK(status.ok(), "{}", status.message());
}

}  // namespace

void Store(TestDevice& device, std::span<const float> values, const View& view) {
  if (view.dtype() == DType::kF32) return Upload(device, values, view);
  std::vector<Bf16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), tensor::ToBf16);
  Upload(device, std::span<const Bf16>(rounded), view);
}

namespace {

// Innermost rows, at most, and the bytes of every one of them that a view gets. All pieces together
// are smaller than what kFarStride has beyond 2^31 elements: cut offsets meet no view.
constexpr int64_t kMaxRows = 6;
constexpr int64_t kPieceBytes = int64_t{1} << 14;
constexpr int64_t kMaxViews = 16;
static_assert(kMaxViews * kPieceBytes < (kFarStride - (int64_t{1} << 31)) * 2);
// Before the first row: a negative offset of 32 bits stays inside too.
constexpr int64_t kBefore = int64_t{9} << 30;
constexpr int32_t kMark = 77;

// Calls body(row, index) for every innermost row, dense, in order.
template <typename AnyView, typename Body>
void ForInnerRows(const AnyView& view, const Body& body) {
  const int64_t columns = view.size(view.rank() - 1);
  const int64_t inner = view.rank() == 3 ? view.size(1) : 1;
  const int64_t inner_stride = view.rank() == 3 ? view.stride(1) : 0;
  const int64_t element = tensor::SizeOf(view.dtype());
  using Byte = std::conditional_t<std::is_same_v<AnyView, ConstView>, const std::byte, std::byte>;
  for (int64_t i = 0; i < view.size(0) * inner; ++i) {
    const int64_t offset = i / inner * view.stride(0) + i % inner * inner_stride;
    body(AnyView(static_cast<Byte*>(view.raw()) + offset * element, view.dtype(), {1, columns}), i);
  }
}

}  // namespace

Arguments::Arguments(TestDevice& device, Rows rows) : device_(device) {
  if (rows == Rows::kFar)
    memory_ = std::make_unique<VirtualMemory>(kBefore + kMaxRows * kFarStride * 4);
}

View Arguments::Place(DType type, const Sizes& sizes) {
  LONGSPAN_CHECK(sizes.size() == 2 || sizes.size() == 3, "{} dimensions", sizes.size());
  const bool heads = sizes.size() == 3;
  if (!far())
    return heads ? device_.Zeros(type, {sizes[0], sizes[1], sizes[2]})
                 : device_.Zeros(type, {sizes[0], sizes[1]});
  LONGSPAN_CHECK(sizes.back() * tensor::SizeOf(type) <= kPieceBytes && placed_ < kMaxViews,
                 "view {} of {} columns", placed_, sizes.back());
  const int64_t offset = kBefore + placed_++ * kPieceBytes;
  const int64_t rows = heads ? sizes[0] * sizes[1] : sizes[0];
  LONGSPAN_CHECK(rows <= kMaxRows, "{} rows", rows);
  const View first = memory_->At(offset, type, {1, sizes.back()});
  const View wide = heads ? View(first.raw(), type, {sizes[0], sizes[1], kFarStride})
                          : View(first.raw(), type, {sizes[0], kFarStride});
  return wide.Columns(0, sizes.back());
}

View Arguments::Floats(std::span<const float> values, DType type, const Sizes& sizes) {
  const View view = Place(type, sizes);
  ForInnerRows(view, [&](const View& row, int64_t i) {
    Store(device_, values.subspan(i * row.size(1), row.size(1)), row);
  });
  return view;
}

View Arguments::Ints(std::span<const int32_t> values, const Sizes& sizes) {
  const View view = Place(DType::kI32, sizes);
  ForInnerRows(view, [&](const View& row, int64_t i) {
    Upload(device_, values.subspan(i * row.size(1), row.size(1)), row);
  });
  return view;
}

View Arguments::Out(DType type, const Sizes& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  if (type == DType::kI32) return Ints(std::vector<int32_t>(elements, kMark), sizes);
  return Floats(std::vector<float>(elements, kMark), type, sizes);
}

std::vector<float> Arguments::ReadFloats(const ConstView& view) {
  std::vector<float> values;
  ForInnerRows(view, [&](const ConstView& row, int64_t) {
    const auto read = device_.ReadFloats(row);
    values.insert(values.end(), read.begin(), read.end());
  });
  return values;
}

std::vector<int32_t> Arguments::ReadInts(const ConstView& view) {
  std::vector<int32_t> values;
  ForInnerRows(view, [&](const ConstView& row, int64_t) {
    const auto read = device_.ReadInts(row);
    values.insert(values.end(), read.begin(), read.end());
  });
  return values;
}

}  // namespace longspan::op_suite
