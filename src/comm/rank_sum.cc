#include "comm/rank_sum.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"

namespace longspan::comm {
namespace {

// So many partial sums stay in the first cache while the blocks are added to them.
constexpr int64_t kAtOnce = 2048;

float Widen(float value) { return value; }
float Widen(tensor::Bf16 value) { return tensor::ToFloat(value); }
void Store(float sum, float& out) { out = sum; }
void Store(float sum, tensor::Bf16& out) { out = tensor::ToBf16(sum); }

template <typename Element>
void Sum(std::span<const std::byte* const> blocks, int64_t count, std::byte* out) {
  std::array<float, kAtOnce> sums;
  for (int64_t begin = 0; begin < count; begin += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - begin);
    const auto* first = reinterpret_cast<const Element*>(blocks[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = Widen(first[i]);
    for (const std::byte* block : blocks.subspan(1)) {
      const auto* next = reinterpret_cast<const Element*>(block) + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] += Widen(next[i]);
    }
    auto* to = reinterpret_cast<Element*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) Store(sums[i], to[i]);
  }
}

}  // namespace

void SumBlocks(tensor::DType dtype, std::span<const std::byte* const> blocks, int64_t count,
               std::byte* out) {
  LONGSPAN_CHECK(dtype == tensor::DType::kF32 || dtype == tensor::DType::kBf16,
                 "ranks sum f32 or bf16, not {}", tensor::DTypeName(dtype));
  if (dtype == tensor::DType::kF32)
    Sum<float>(blocks, count, out);
  else
    Sum<tensor::Bf16>(blocks, count, out);
}

}  // namespace longspan::comm
