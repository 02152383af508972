// The ops that go over rows one by one.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/packed.h"

namespace longspan::backend::cpu {

using tensor::Bf16;

namespace {

// A row of W, converted to `out`; its words lie a panel's row apart.
void UnpackRow(const CpuPackedWeight& weight, int64_t row, ElementType out_type, char* out) {
  constexpr int64_t kStepsAtOnce = 256;
  const bool bf16 = weight.compute() == tensor::DType::kBf16;
  const int64_t step_elements = bf16 ? 2 : 1;
  const auto convert = ActiveKernels().convert[bf16 ? kBfloat : kFloat][out_type];
  const int64_t out_bytes = out_type == kFloat ? 4 : 2;
  const uint32_t* column = weight.panel(row / kPanelColumns) + row % kPanelColumns;
  std::array<uint32_t, kStepsAtOnce> words;
  for (int64_t first = 0; first < weight.steps(); first += kStepsAtOnce) {
    const int64_t count = std::min(kStepsAtOnce, weight.steps() - first);
    for (int64_t i = 0; i < count; ++i) words[i] = column[(first + i) * kPanelColumns];
    const int64_t element = first * step_elements;
    convert(words.data(), out + element * out_bytes,
            std::min(count * step_elements, weight.columns() - element));
  }
}

}  // namespace

void Embedding(tensor::ExecutionContext& context, const ops::EmbeddingArgs& args) {
  const auto* tokens = args.tokens.data<int32_t>();
  if (args.table.empty()) {
    const auto& table = static_cast<const CpuPackedWeight&>(*args.packed);
    ForRows(context, args.out.size(0), table.columns(), [&](int64_t row) {
      LONGSPAN_DCHECK(tokens[row] >= 0 && tokens[row] < table.rows(), "token {}", tokens[row]);
      UnpackRow(table, tokens[row], TypeOf(args.out), RowAt(args.out, row));
    });
    return;
  }
  const auto convert = ActiveKernels().convert[TypeOf(args.table)][TypeOf(args.out)];
  const int64_t columns = args.out.size(1);
  ForRows(context, args.out.size(0), columns, [&](int64_t row) {
    LONGSPAN_DCHECK(tokens[row] >= 0 && tokens[row] < args.table.size(0), "token {}", tokens[row]);
    convert(RowAt(args.table, tokens[row]), RowAt(args.out, row), columns);
  });
}

void GatherRows(tensor::ExecutionContext& context, const ops::GatherRowsArgs& args) {
  const auto* index = args.index.data<int32_t>();
  const int64_t columns = args.out.size(1);
  const int64_t bytes = columns * tensor::SizeOf(args.out.dtype());
  ForRows(context, args.out.size(0), columns, [&](int64_t row) {
    LONGSPAN_DCHECK(index[row] >= 0 && index[row] < args.x.size(0), "row {}", index[row]);
    std::copy_n(RowAt(args.x, index[row]), bytes, RowAt(args.out, row));
  });
}

void RmsNorm(tensor::ExecutionContext& context, const ops::RmsNormArgs& args) {
  const auto* weight = args.weight.data<float>();
  const auto norm = ActiveKernels().rms_norm[TypeOf(args.x)];
  const bool by_head = args.x.rank() == 3;
  const int64_t heads = by_head ? args.x.size(1) : 1;
  const int64_t columns = args.x.size(args.x.rank() - 1);
  const int64_t element = tensor::SizeOf(args.x.dtype());
  const int64_t x_head = by_head ? args.x.stride(1) * element : 0;
  const int64_t out_head = by_head ? args.out.stride(1) * element : 0;
  ForRows(context, args.x.size(0), heads * columns, [&](int64_t row) {
    for (int64_t head = 0; head < heads; ++head)
      norm(RowAt(args.x, row) + head * x_head, weight, args.epsilon, columns,
           RowAt(args.out, row) + head * out_head);
  });
}

void LayerNorm(tensor::ExecutionContext& context, const ops::LayerNormArgs& args) {
  const auto* weight = args.weight.data<float>();
  const auto* bias = args.bias.data<float>();
  const auto norm = ActiveKernels().layer_norm[TypeOf(args.x)];
  const int64_t columns = args.x.size(1);
  ForRows(context, args.x.size(0), 2 * columns, [&](int64_t row) {
    norm(RowAt(args.x, row), weight, bias, args.epsilon, columns, RowAt(args.out, row));
  });
}

void Add(tensor::ExecutionContext& context, const ops::AddArgs& args) {
  const auto add = ActiveKernels().add[TypeOf(args.x)];
  const int64_t columns = args.x.size(1);
  ForRows(context, args.x.size(0), columns,
          [&](int64_t row) { add(RowAt(args.x, row), RowAt(args.y, row), columns); });
}

void SiluMul(tensor::ExecutionContext& context, const ops::SiluMulArgs& args) {
  const auto silu_mul = ActiveKernels().silu_mul[TypeOf(args.out)];
  const int64_t columns = args.out.size(1);
  const int64_t up = columns * tensor::SizeOf(args.out.dtype());
  ForRows(context, args.out.size(0), 4 * columns, [&](int64_t row) {
    const char* gate = RowAt(args.gate_up, row);
    silu_mul(gate, gate + up, columns, RowAt(args.out, row));
  });
}

void RopeTable(tensor::ExecutionContext& context, const ops::RopeTableArgs& args) {
  const auto* positions = args.positions.data<int32_t>();
  const auto* frequencies = args.inverse_frequencies.data<float>();
  const int64_t pairs = args.cosines.size(1);
  // A sine costs some tens of simple operations.
  ForRows(context, args.cosines.size(0), 64 * pairs, [&](int64_t row) {
    auto* cosines = args.cosines.row<float>(row);
    auto* sines = args.sines.row<float>(row);
    const auto position = static_cast<float>(positions[row]);
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle = position * frequencies[i];
      cosines[i] = args.amplitude * std::cos(angle);
      sines[i] = args.amplitude * std::sin(angle);
    }
  });
}

namespace {

float Get(const float* p) { return *p; }
float Get(const Bf16* p) { return tensor::ToFloat(*p); }
void Put(float value, float* p) { *p = value; }
void Put(float value, Bf16* p) { *p = tensor::ToBf16(value); }

template <typename T>
void RotateNeighbours(void* x, const float* cosines, const float* sines, int64_t pairs) {
  auto* element = static_cast<T*>(x);
  for (int64_t i = 0; i < pairs; ++i, element += 2) {
    const float a = Get(element);
    const float b = Get(element + 1);
    Put(a * cosines[i] - b * sines[i], element);
    Put(b * cosines[i] + a * sines[i], element + 1);
  }
}

}  // namespace

void Rope(tensor::ExecutionContext& context, const ops::RopeArgs& args) {
  const ElementType type = TypeOf(args.x);
  auto rotate = ActiveKernels().rotate_halves[type];
  if (args.pairs == spec::RopePairs::kInterleaved)
    rotate = type == kFloat ? RotateNeighbours<float> : RotateNeighbours<Bf16>;
  const int64_t heads = args.x.size(1);
  const int64_t pairs = args.cosines.size(1);
  const int64_t head_bytes = args.x.stride(1) * tensor::SizeOf(args.x.dtype());
  ForRows(context, args.x.size(0), 2 * heads * pairs, [&](int64_t row) {
    for (int64_t head = 0; head < heads; ++head)
      rotate(RowAt(args.x, row) + head * head_bytes, args.cosines.row<float>(row),
             args.sines.row<float>(row), pairs);
  });
}

void CacheWrite(tensor::ExecutionContext& context, const ops::CacheWriteArgs& args) {
  const auto* slots = args.slots.data<int64_t>();
  const auto convert = ActiveKernels().convert[TypeOf(args.x)][TypeOf(args.cache)];
  const int64_t heads = args.x.size(1);
  const int64_t dim = args.x.size(2);
  const int64_t page_size = args.cache.size(2);
  const int64_t element = tensor::SizeOf(args.x.dtype());
  const int64_t cache_element = tensor::SizeOf(args.cache.dtype());
  ForRows(context, args.x.size(0), heads * dim, [&](int64_t row) {
    const int64_t page = slots[row] / page_size;
    LONGSPAN_DCHECK(slots[row] >= 0 && page < args.cache.size(0), "slot {}", slots[row]);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t to =
          ((page * heads + head) * page_size + slots[row] % page_size) * dim * cache_element;
      convert(RowAt(args.x, row) + head * args.x.stride(1) * element,
              static_cast<char*>(args.cache.raw()) + to, dim);
    }
  });
}

}  // namespace longspan::backend::cpu
