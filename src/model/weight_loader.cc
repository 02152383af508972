#include "model/weight_loader.h"

#include <array>
#include <cstring>

namespace longspan::model {
namespace {

using tensor::DType;

// Appends the stored elements as f32; exact for every stored type.
void AppendFloats(const tensor::ConstView& stored, std::vector<float>& out) {
  const int64_t count = stored.elements();
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(count));
  if (stored.dtype() == DType::kF32) {
    std::memcpy(out.data() + begin, stored.raw(), static_cast<size_t>(stored.bytes()));
  } else if (stored.dtype() == DType::kBf16) {
    const auto* values = stored.data<tensor::Bf16>();
    for (int64_t i = 0; i < count; ++i) out[begin + i] = tensor::ToFloat(values[i]);
  } else {
    const auto* bits = static_cast<const uint16_t*>(stored.raw());
    for (int64_t i = 0; i < count; ++i) out[begin + i] = tensor::HalfToFloat(bits[i]);
  }
}

// `rows` is dense; its transpose lies in `bytes`.
template <typename Element>
tensor::ConstView TransposeElements(const tensor::ConstView& rows, std::vector<std::byte>& bytes) {
  bytes.resize(static_cast<size_t>(rows.bytes()));
  const auto* from = static_cast<const Element*>(rows.raw());
  auto* to = reinterpret_cast<Element*>(bytes.data());
  for (int64_t i = 0; i < rows.size(0); ++i)
    for (int64_t j = 0; j < rows.size(1); ++j) to[j * rows.size(0) + i] = *from++;
  return {bytes.data(), rows.dtype(), {rows.size(1), rows.size(0)}};
}

tensor::ConstView Transpose(const tensor::ConstView& rows, std::vector<std::byte>& bytes) {
  return tensor::SizeOf(rows.dtype()) == 4 ? TransposeElements<uint32_t>(rows, bytes)
                                           : TransposeElements<uint16_t>(rows, bytes);
}

// Empty unless all parts are made of counters.
std::vector<ops::GeneratedMatrix> CountersOf(const checkpoint::WeightSource& source,
                                             std::span<const NamedMatrix> parts, int64_t columns) {
  std::vector<ops::GeneratedMatrix> matrices;
  for (const NamedMatrix& part : parts) {
    const std::array<int64_t, 2> shape = {part.rows, columns};
    const auto counter = source.Counter(part.name, shape);
    if (!counter) return {};
    matrices.push_back({part.rows, counter->key, counter->table});
  }
  return matrices;
}

}  // namespace

base::Result<std::unique_ptr<ops::PackedWeight>> WeightLoader::Matrix(
    std::span<const NamedMatrix> parts, const MatrixColumns& columns) {
  // Of a whole matrix only: a piece's elements do not follow one another.
  if (backend_.generates_weights() && ranks() == 1) {
    const auto generated = CountersOf(source_, parts, columns.count);
    if (!generated.empty()) {
      LONGSPAN_ASSIGN_OR_RETURN(auto packed, backend_.Generate({.parts = generated,
                                                                .columns = columns.count,
                                                                .compute = options_.compute}));
      bytes_ += packed->bytes();
      return packed;
    }
  }
  std::vector<tensor::ConstView> views;
  for (const NamedMatrix& part : parts) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto view, Read(part, columns));
    views.push_back(view);
  }
  LONGSPAN_ASSIGN_OR_RETURN(auto packed,
                            backend_.Pack({.parts = views, .compute = options_.compute}));
  for (const NamedMatrix& part : parts) source_.Release(part.name);
  bytes_ += packed->bytes();
  return packed;
}

base::Result<std::vector<std::unique_ptr<ops::PackedWeight>>> WeightLoader::Parts(
    const NamedMatrix& matrix, int64_t columns, std::span<const MatrixPart> parts) {
  LONGSPAN_ASSIGN_OR_RETURN(const tensor::ConstView stored, Read(matrix, columns));
  std::vector<std::unique_ptr<ops::PackedWeight>> weights;
  std::vector<std::byte> transposed;
  for (const MatrixPart& part : parts) {
    tensor::ConstView view = stored.Rows(part.row_begin, part.rows);
    if (part.transposed) view = Transpose(view, transposed);
    LONGSPAN_ASSIGN_OR_RETURN(auto packed,
                              backend_.Pack({.parts = {&view, 1}, .compute = options_.compute}));
    bytes_ += packed->bytes();
    weights.push_back(std::move(packed));
  }
  source_.Release(matrix.name);
  return weights;
}

base::Result<tensor::Tensor> WeightLoader::Vector(std::initializer_list<NamedMatrix> parts) {
  std::vector<float> values;
  for (const NamedMatrix& part : parts) {
    const std::array<int64_t, 1> shape = {part.rows * part.pieces};
    LONGSPAN_ASSIGN_OR_RETURN(const auto view, source_.Read(part.name, shape));
    AppendFloats(view.Rows(options_.share.PieceOf(part.pieces) * part.rows, part.rows), values);
    source_.Release(part.name);
  }
  return Constant(values);
}

base::Result<tensor::Tensor> WeightLoader::SummedBias(const NamedMatrix& bias) {
  if (options_.share.rank != 0) return tensor::Tensor();
  return Vector({bias});
}

base::Result<bool> WeightLoader::IsPackedExactly(const NamedMatrix& matrix,
                                                 const MatrixColumns& columns) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto view, Read(matrix, columns));
  return options_.compute == DType::kF32 || view.dtype() == options_.compute;
}

base::Result<tensor::Tensor> WeightLoader::Table(const NamedMatrix& matrix, int64_t columns) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto view, Read(matrix, columns));
  const int64_t zero_rows = matrix.pieces > 1 ? 1 : 0;
  std::vector<std::byte> extended;  // where there are zeros to add
  std::vector<float> widened;       // where the stored type is neither of the two
  auto bytes =
      std::span(static_cast<const std::byte*>(view.raw()), static_cast<size_t>(view.bytes()));
  DType dtype = view.dtype();
  if (dtype != DType::kBf16) {
    AppendFloats(view, widened);
    bytes = std::as_bytes(std::span(widened));
    dtype = DType::kF32;
  }
  if (zero_rows > 0) {
    extended.assign(bytes.begin(), bytes.end());
    extended.resize(extended.size() + static_cast<size_t>(columns * tensor::SizeOf(dtype)));
    bytes = extended;
  }
  auto table = Store(bytes, dtype, {matrix.rows + zero_rows, columns});
  source_.Release(matrix.name);
  return table;
}

// This rank's piece.
base::Result<tensor::ConstView> WeightLoader::Read(const NamedMatrix& matrix,
                                                   const MatrixColumns& columns) {
  const std::array<int64_t, 2> shape = {matrix.rows * matrix.pieces,
                                        columns.count * columns.pieces};
  if (matrix.pieces == 1 && columns.pieces == 1) return source_.Read(matrix.name, shape);
  const plan::TensorShare& share = options_.share;
  return source_.ReadWindow(matrix.name, shape,
                            {.row_begin = share.PieceOf(matrix.pieces) * matrix.rows,
                             .rows = matrix.rows,
                             .column_begin = share.PieceOf(columns.pieces) * columns.count,
                             .columns = columns.count});
}

base::Result<tensor::Tensor> WeightLoader::Constant(std::span<const float> values) {
  return Store(std::as_bytes(values), DType::kF32, {static_cast<int64_t>(values.size())});
}

base::Result<tensor::Tensor> WeightLoader::Store(std::span<const std::byte> host, DType dtype,
                                                 std::initializer_list<int64_t> sizes) {
  LONGSPAN_ASSIGN_OR_RETURN(auto buffer, backend_.Allocate(static_cast<int64_t>(host.size())));
  const tensor::View view = buffer.AsView(dtype, sizes);
  LONGSPAN_RETURN_IF_ERROR(backend_.Upload(queue_, host, view));
  bytes_ += buffer.bytes();
  return tensor::Tensor(std::move(buffer), view);
}

}  // namespace longspan::model
