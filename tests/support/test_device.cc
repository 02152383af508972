#include "tests/support/test_device.h"

#include <algorithm>
#include <utility>

namespace longspan::support {

using tensor::Bf16;
using tensor::ConstView;
using tensor::DType;
using tensor::View;

TestDevice::TestDevice(const ops::Backend& backend, int threads, const ops::WorkspaceShape& shape)
    : backend_(backend),
      queue_(std::move(backend.CreateQueue({.threads = threads})).value()),
      workspace_(std::move(backend.Allocate(backend.WorkspaceBytes(*queue_, shape))).value()),
      // Of the tests that cut steps apart, all want equal bits.
      context_{*queue_, workspace_, /*deterministic=*/true} {}

View TestDevice::Zeros(DType type, Sizes sizes) {
  const View shape(nullptr, type, sizes);
  buffers_.push_back(std::move(backend_.Allocate(shape.bytes())).value());
  return buffers_.back().AsView(type, sizes);
}

template <typename T>
View TestDevice::Upload(std::span<const T> values, Sizes sizes) {
  const View view = Zeros(tensor::DTypeOf<T>::kValue, sizes);
  const base::Status status = backend_.Upload(*queue_, std::as_bytes(values), view);
  LONGSPAN_CHECK(status.ok(), "{}", status.message());
  return view;
}

View TestDevice::Floats(std::span<const float> values, DType type, Sizes sizes) {
  if (type == DType::kF32) return Upload<float>(values, sizes);
  std::vector<Bf16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), tensor::ToBf16);
  return Upload<Bf16>(rounded, sizes);
}

View TestDevice::Ints(std::span<const int32_t> values, Sizes sizes) {
  return Upload<int32_t>(values, sizes);
}

View TestDevice::Longs(std::span<const int64_t> values, Sizes sizes) {
  return Upload<int64_t>(values, sizes);
}

const ops::PackedWeight* TestDevice::Weight(std::span<const float> values, DType compute,
                                            int64_t rows, int64_t columns) {
  const ConstView part(values.data(), DType::kF32, {rows, columns});
  return Pack({&part, 1}, compute);
}

const ops::PackedWeight* TestDevice::Pack(std::span<const ConstView> parts, DType compute) {
  weights_.push_back(std::move(backend_.Pack({.parts = parts, .compute = compute})).value());
  return weights_.back().get();
}

template <typename T>
std::vector<T> TestDevice::Read(const ConstView& view) {
  std::vector<T> values(view.elements());
  const int64_t rows = view.size(0);
  const int64_t row_elements = rows == 0 ? 0 : view.elements() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    const base::Status status = backend_.Download(
        *queue_, view.Rows(row, 1),
        std::as_writable_bytes(std::span(values).subspan(row * row_elements, row_elements)));
    LONGSPAN_CHECK(status.ok(), "{}", status.message());
  }
  return values;
}

std::vector<float> TestDevice::ReadFloats(const ConstView& view) {
  if (view.dtype() == DType::kF32) return Read<float>(view);
  const std::vector<Bf16> values = Read<Bf16>(view);
  std::vector<float> widened(values.size());
  std::transform(values.begin(), values.end(), widened.begin(),
                 [](Bf16 value) { return tensor::ToFloat(value); });
  return widened;
}

std::vector<int32_t> TestDevice::ReadInts(const ConstView& view) { return Read<int32_t>(view); }

}  // namespace longspan::support
