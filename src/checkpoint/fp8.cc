#include "checkpoint/fp8.h"

#include <array>
#include <map>
#include <string>
#include <utility>

#include "checkpoint/quoted.h"
#include "tensor/buffer.h"
#include "tensor/host_memory.h"

namespace longspan::checkpoint {
namespace {

using tensor::ConstView;
using tensor::DType;

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

std::string ScaleName(std::string_view name) { return std::string(name) + "_scale_inv"; }

const std::array<float, 256>& Decoded() {
  static const auto table = [] {
    std::array<float, 256> values{};
    for (int code = 0; code < 256; ++code)
      values[code] = tensor::E4M3ToFloat(static_cast<uint8_t>(code));
    return values;
  }();
  return table;
}

// The codes of a window, wherever it cuts the blocks, and the scales of the whole matrix.
void Dequantize(const ConstView& stored, const MatrixWindow& window, const ConstView& scales,
                const Fp8Blocks& blocks, float* out) {
  const auto& decoded = Decoded();
  const auto* const first = static_cast<const uint8_t*>(stored.raw());
  const int64_t column_end = window.column_begin + window.columns;
  for (int64_t row = 0; row < window.rows; ++row) {
    const uint8_t* codes = first + row * stored.stride(0);
    const float* const scale = scales.row<float>((window.row_begin + row) / blocks.rows);
    for (int64_t column = window.column_begin; column < column_end;) {
      const int64_t block = column / blocks.columns;
      const int64_t end = std::min((block + 1) * blocks.columns, column_end);
      for (; column < end; ++column) *out++ = decoded[*codes++] * scale[block];
    }
  }
}

class Fp8Source : public WeightSource {
 public:
  Fp8Source(std::unique_ptr<WeightSource> stored, std::optional<Fp8Blocks> blocks)
      : stored_(std::move(stored)), blocks_(blocks) {}

  bool Has(std::string_view name) const override { return stored_->Has(name); }

  base::Result<ConstView> Read(std::string_view name, std::span<const int64_t> shape) override {
    LONGSPAN_ASSIGN_OR_RETURN(const ConstView codes, stored_->Read(name, shape));
    if (codes.dtype() != DType::kF8E4M3) return codes;
    LONGSPAN_RETURN_IF_ERROR(CheckMatrix(name, shape));
    return DequantizeWindow(name, shape, {0, shape[0], 0, shape[1]}, codes);
  }

  base::Result<ConstView> ReadWindow(std::string_view name, std::span<const int64_t> shape,
                                     const MatrixWindow& window) override {
    LONGSPAN_ASSIGN_OR_RETURN(const ConstView codes, stored_->ReadWindow(name, shape, window));
    if (codes.dtype() != DType::kF8E4M3) return codes;
    LONGSPAN_RETURN_IF_ERROR(CheckMatrix(name, shape));
    return DequantizeWindow(name, shape, window, codes);
  }

  void Release(std::string_view name) override {
    if (const auto found = held_.find(name); found != held_.end())
      held_.erase(found);
    else
      stored_->Release(name);
  }

  int64_t bytes_read() const override { return stored_->bytes_read(); }

 private:
  base::Status CheckMatrix(std::string_view name, std::span<const int64_t> shape) const {
    if (!blocks_)
      return base::Unimplemented(
          "tensor {} is stored in FP8, but the model's config.json has no quantization_config",
          Quoted(name));
    if (shape.size() != 2)
      return base::Unimplemented("tensor {} is stored in FP8 and has {} dimensions, not 2",
                                 Quoted(name), shape.size());
    return base::OkStatus();
  }

  base::Result<ConstView> DequantizeWindow(std::string_view name, std::span<const int64_t> shape,
                                           const MatrixWindow& window, const ConstView& codes) {
    const std::string scale_name = ScaleName(name);
    const std::array<int64_t, 2> scale_shape = {Blocks(shape[0], blocks_->rows),
                                                Blocks(shape[1], blocks_->columns)};
    LONGSPAN_ASSIGN_OR_RETURN(const ConstView scales, stored_->Read(scale_name, scale_shape));
    if (scales.dtype() != DType::kF32)
      return base::Unimplemented("tensor {} has the element type {}; scales must be f32",
                                 Quoted(scale_name), tensor::DTypeName(scales.dtype()));
    LONGSPAN_ASSIGN_OR_RETURN(tensor::Buffer buffer,
                              tensor::AllocateHost(codes.elements() * tensor::SizeOf(DType::kF32)));
    Dequantize(codes, window, scales, *blocks_, static_cast<float*>(buffer.data()));
    const ConstView view(buffer.data(), DType::kF32, {window.rows, window.columns});
    stored_->Release(name);
    stored_->Release(scale_name);
    held_.insert_or_assign(std::string(name), std::move(buffer));
    return view;
  }

  std::unique_ptr<WeightSource> stored_;
  std::optional<Fp8Blocks> blocks_;
  std::map<std::string, tensor::Buffer, std::less<>> held_;
};

}  // namespace

std::unique_ptr<WeightSource> DequantizeFp8(std::unique_ptr<WeightSource> stored,
                                            std::optional<Fp8Blocks> blocks) {
  return std::make_unique<Fp8Source>(std::move(stored), blocks);
}

}  // namespace longspan::checkpoint
