// Element types and the conversions between them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace longspan::tensor {

enum class DType : uint8_t { kF32, kBf16, kF16, kI32, kI64, kU8, kF8E4M3 };

// Bytes of one element.
constexpr int64_t SizeOf(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
    case DType::kF8E4M3:
      return 1;
  }
  return 0;
}

// "f32", "bf16", ...
std::string_view DTypeName(DType type);

// bfloat16 as it lies in memory (g++ 12 has no arithmetic type for it).
struct Bf16 {
  uint16_t bits = 0;
  friend bool operator==(Bf16, Bf16) = default;
};

constexpr float ToFloat(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
constexpr Bf16 ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// IEEE half precision -> float, exact.
float HalfToFloat(uint16_t bits);

// Eight bits with four of exponent (bias 7) and three of mantissa, no infinity, 0x7f and 0xff NaN
// (float8 e4m3fn) -> float, exact.
float E4M3ToFloat(uint8_t bits);

// The DType of a C++ element type.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType kValue = DType::kBf16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType kValue = DType::kI64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType kValue = DType::kU8;
};

}  // namespace longspan::tensor
