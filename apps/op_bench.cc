#include "apps/op_bench.h"

#include <algorithm>
#include <numeric>

#include "apps/bench_run.h"
#include "base/clock.h"
#include "base/mix_bits.h"

namespace longspan::apps {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::View;

constexpr int64_t kPiece = (int64_t{1} << 22) - 3;  // of random numbers; no period of a row

float RandomValue(uint64_t index) {
  return static_cast<float>(base::MixBits(index) >> 40) * 0x1p-23f - 1;
}

template <typename T>
std::vector<T> RandomValues(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  uint64_t index = 0;
  for (T& value : values) {
    if constexpr (std::is_same_v<T, Bf16>)
      value = tensor::ToBf16(RandomValue(++index));
    else
      value = RandomValue(++index);
  }
  return values;
}

template <typename T>
const std::vector<T>& RandomPiece() {
  static const std::vector<T> values = RandomValues<T>(kPiece);
  return values;
}

}  // namespace

double SliceShape::Pairs(int64_t most) const {
  // Row i of a slice sees keys - rows + 1 + i of them.
  const int64_t first = std::min(most, keys - rows + 1);
  const int64_t growing = std::clamp(most - (keys - rows), int64_t{0}, rows);
  const auto grown = static_cast<double>(growing);
  const double pairs = grown * (static_cast<double>(first) + (grown - 1) / 2) +
                       static_cast<double>(rows - growing) * static_cast<double>(most);
  return pairs * static_cast<double>(slices);
}

base::Result<std::unique_ptr<OpBench>> OpBench::Create(const ops::Backend& backend,
                                                       const ops::QueueOptions& queue,
                                                       const Options& options) {
  LONGSPAN_RETURN_IF_ERROR(backend.CheckTypes(options.type, options.type));
  std::unique_ptr<OpBench> bench(new OpBench(backend, options));
  LONGSPAN_ASSIGN_OR_RETURN(bench->queue_, backend.CreateQueue(queue));
  return bench;
}

int64_t OpBench::CopiesBeyondCaches(int64_t bytes) const {
  if (!backend_.is_on_host()) return 1;
  return std::max<int64_t>(1, (options_.beyond_caches + bytes - 1) / bytes);
}

void OpBench::Keep(const base::Status& status) {
  if (failure_.ok()) failure_ = status;
}

void OpBench::Release() {
  buffers_.clear();
  weights_.clear();
}

void OpBench::Reserve(const ops::WorkspaceShape& shape) {
  const int64_t bytes = backend_.WorkspaceBytes(*queue_, shape);
  if (bytes <= workspace_.bytes()) return;
  workspace_ = {};
  auto memory = backend_.Allocate(bytes);
  Keep(memory.status());
  if (memory.ok()) workspace_ = tensor::Workspace(std::move(*memory));
}

View OpBench::Take(DType type, Sizes sizes) {
  const View shape(nullptr, type, sizes);
  auto buffer = backend_.Allocate(shape.bytes());
  Keep(buffer.status());
  if (!failure_.ok()) return shape;
  buffers_.push_back(std::move(*buffer));
  return buffers_.back().AsView(type, sizes);
}

View OpBench::Random(DType type, Sizes sizes) {
  const View view = Take(type, sizes);
  if (!failure_.ok()) return view;
  const auto values = type == DType::kBf16 ? std::as_bytes(std::span(RandomPiece<Bf16>()))
                                           : std::as_bytes(std::span(RandomPiece<float>()));
  const int64_t element = tensor::SizeOf(type);
  for (int64_t begin = 0; begin < view.elements(); begin += kPiece) {
    const int64_t count = std::min(kPiece, view.elements() - begin);
    Keep(backend_.Upload(*queue_, values.first(static_cast<size_t>(count * element)),
                         buffers_.back().ViewAt(begin * element, type, {count})));
  }
  return view;
}

View OpBench::Upload(DType type, std::span<const std::byte> values, Sizes sizes) {
  const View view = Take(type, sizes);
  if (failure_.ok()) Keep(backend_.Upload(*queue_, values, view));
  return view;
}

View OpBench::Indices(const std::vector<int32_t>& values, Sizes sizes) {
  return Upload(DType::kI32, std::as_bytes(std::span(values)), sizes);
}

View OpBench::Numbers(const std::vector<float>& values, Sizes sizes) {
  return Upload(DType::kF32, std::as_bytes(std::span(values)), sizes);
}

View OpBench::WideIndices(const std::vector<int64_t>& values, Sizes sizes) {
  return Upload(DType::kI64, std::as_bytes(std::span(values)), sizes);
}

const ops::PackedWeight* OpBench::Weight(int64_t rows, int64_t columns) {
  const std::vector<Bf16> own =
      rows * columns > kPiece ? RandomValues<Bf16>(rows * columns) : std::vector<Bf16>();
  const Bf16* values = own.empty() ? RandomPiece<Bf16>().data() : own.data();
  const tensor::ConstView part(values, DType::kBf16, {rows, columns});
  auto weight = backend_.Pack({.parts = {&part, 1}, .compute = options_.type});
  Keep(weight.status());
  if (!weight.ok()) return nullptr;
  weights_.push_back(std::move(*weight));
  return weights_.back().get();
}

std::vector<const ops::PackedWeight*> OpBench::Weights(int64_t count, int64_t rows,
                                                       int64_t columns) {
  std::vector<const ops::PackedWeight*> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(Weight(rows, columns));
  return list;
}

int64_t OpBench::PagesOf(const SliceShape& shape, int64_t copies) {
  return copies * shape.slices * ((shape.keys + kPageSize - 1) / kPageSize);
}

std::vector<ops::StepTables> OpBench::Tables(const SliceShape& shape, int64_t copies) {
  const int64_t pages = PagesOf(shape, 1) / shape.slices;
  std::vector<int32_t> scattered(static_cast<size_t>(PagesOf(shape, copies)));
  std::iota(scattered.begin(), scattered.end(), 0);
  for (size_t i = scattered.size(); i > 1; --i)
    std::swap(scattered[i - 1], scattered[base::MixBits(i) % i]);
  std::vector<ops::StepTables> list;
  for (int64_t copy = 0; copy < copies; ++copy) {
    const auto first_page = scattered.begin() + copy * shape.slices * pages;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    std::vector<int32_t> slice_begin = {0};
    for (int64_t slice = 0; slice < shape.slices; ++slice) {
      for (int64_t p = shape.keys - shape.rows; p < shape.keys; ++p) {
        positions.push_back(static_cast<int32_t>(p));
        const int64_t page = *(first_page + slice * pages + p / kPageSize);
        slots.push_back(page * kPageSize + p % kPageSize);
      }
      slice_begin.push_back(static_cast<int32_t>(positions.size()));
    }
    const int64_t rows = shape.all_rows();
    list.push_back({.rows = rows,
                    .slices = shape.slices,
                    .max_kv_length = shape.keys,
                    .positions = Indices(positions, {rows}),
                    .slots = WideIndices(slots, {rows}),
                    .slice_row_begin = Indices(slice_begin, {shape.slices + 1}),
                    .page_table = Indices({first_page, first_page + shape.slices * pages},
                                          {shape.slices, pages})});
  }
  return list;
}

base::Result<OpFigure> OpBench::TimeCalls(OpFigure figure,
                                          const std::function<void(int64_t)>& call) {
  const base::Clock& clock = base::SteadyClock();
  int64_t calls = 0;
  const auto timed = [&](int64_t times) -> base::Result<double> {
    const auto begin = clock.Now();
    for (int64_t i = 0; i < times; ++i) call(calls++);
    LONGSPAN_RETURN_IF_ERROR(queue_->Synchronize());
    return base::Seconds(clock.Now() - begin) / static_cast<double>(times);
  };
  LONGSPAN_RETURN_IF_ERROR(failure_);
  LONGSPAN_RETURN_IF_ERROR(timed(2).status());
  LONGSPAN_ASSIGN_OR_RETURN(const double first, timed(1));
  const auto times =
      std::clamp<int64_t>(static_cast<int64_t>(options_.shortest_run_s / first), 1, 10000);
  std::vector<double> seconds;
  for (int i = 0; i < options_.repeat; ++i) {
    LONGSPAN_ASSIGN_OR_RETURN(const double each, timed(times));
    seconds.push_back(each);
  }
  figure.seconds = SpreadOf(std::move(seconds)).median;
  Release();
  return figure;
}

}  // namespace longspan::apps
