#include "backend/cpu/packed.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/check_backend.h"

namespace longspan::backend::cpu {
namespace {

using tensor::Bf16;
using tensor::DType;

float Element(const tensor::ConstView& part, int64_t row, int64_t column) {
  const int64_t at = row * part.stride(0) + column;
  switch (part.dtype()) {
    case DType::kBf16:
      return tensor::ToFloat(static_cast<const Bf16*>(part.raw())[at]);
    case DType::kF16:
      return tensor::HalfToFloat(static_cast<const uint16_t*>(part.raw())[at]);
    default:
      return static_cast<const float*>(part.raw())[at];
  }
}

// Steps that are converted at once, so that a row is read some cache lines at a time.
constexpr int64_t kStepsAtOnce = 32;
using Words = std::array<uint32_t, kStepsAtOnce>;

// Words [step, step + count) of a row of W.
void ReadWords(const tensor::ConstView& part, int64_t row, int64_t step, int64_t count,
               DType compute, Words& words) {
  const int64_t columns = part.size(1);
  if (compute == DType::kF32) {
    for (int64_t i = 0; i < count; ++i)
      words[i] = std::bit_cast<uint32_t>(Element(part, row, step + i));
    return;
  }
  if (part.dtype() == DType::kBf16 && 2 * (step + count) <= columns) {
    std::memcpy(words.data(),
                static_cast<const Bf16*>(part.raw()) + row * part.stride(0) + 2 * step, count * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t column = 2 * (step + i);
    const uint32_t low = tensor::ToBf16(Element(part, row, column)).bits;
    const uint32_t high =
        column + 1 < columns ? tensor::ToBf16(Element(part, row, column + 1)).bits : 0;
    words[i] = low | (high << 16);
  }
}

// Rows of one part into their places; the buffer is zeroed.
void PackPart(const tensor::ConstView& part, int64_t first_row, int64_t steps, DType compute,
              uint32_t* packed) {
  Words words;
  for (int64_t row = 0; row < part.size(0); ++row) {
    const int64_t out_row = first_row + row;
    uint32_t* target =
        packed + out_row / kPanelColumns * steps * kPanelColumns + out_row % kPanelColumns;
    for (int64_t step = 0; step < steps; step += kStepsAtOnce) {
      const int64_t count = std::min(kStepsAtOnce, steps - step);
      ReadWords(part, row, step, count, compute, words);
      for (int64_t i = 0; i < count; ++i) target[(step + i) * kPanelColumns] = words[i];
    }
  }
}

}  // namespace

base::Result<std::unique_ptr<ops::PackedWeight>> PackWeight(const ops::PackRequest& request) {
  LONGSPAN_RETURN_IF_ERROR(ops::CheckFloatTypes("cpu", request.compute, request.compute));
  LONGSPAN_ASSIGN_OR_RETURN(const int64_t rows, ops::StackedRows("cpu", request));
  const int64_t columns = request.parts[0].size(1);
  const int64_t steps = CpuPackedWeight::Steps(columns, request.compute);
  const int64_t panels = (rows + kPanelColumns - 1) / kPanelColumns;
  LONGSPAN_ASSIGN_OR_RETURN(tensor::Buffer words,
                            tensor::AllocateHost(panels * kPanelColumns * steps *
                                                 static_cast<int64_t>(sizeof(uint32_t))));
  int64_t first_row = 0;
  for (const tensor::ConstView& part : request.parts) {
    PackPart(part, first_row, steps, request.compute, static_cast<uint32_t*>(words.data()));
    first_row += part.size(0);
  }
  return std::unique_ptr<ops::PackedWeight>(
      std::make_unique<CpuPackedWeight>(rows, columns, request.compute, std::move(words)));
}

}  // namespace longspan::backend::cpu
