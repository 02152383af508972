#include "checkpoint/dummy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/counter_table.h"
#include "base/mix_bits.h"
#include "checkpoint/dense_view.h"
#include "checkpoint/quoted.h"
#include "tensor/buffer.h"

namespace longspan::checkpoint {
namespace {

using tensor::Bf16;

// A value is drawn from so many equally likely ones: the table of one tensor stays in the first
// cache.
constexpr int kTableSize = base::kCounterTableSize;
using Table = std::array<Bf16, kTableSize>;

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

// FNV-1a (Fowler, Noll and Vo), so that a name means the same with every standard library.
uint64_t HashName(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

// The x below which a standard normal variable falls with probability `p`, by halving.
double NormalQuantile(double p) {
  double low = -8;
  double high = 8;
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

const std::array<float, kTableSize>& StandardNormal() {
  static const auto table = [] {
    std::array<float, kTableSize> values{};
    for (int i = 0; i < kTableSize / 2; ++i) {
      values[i] = static_cast<float>(NormalQuantile((i + 0.5) / kTableSize));
      values[kTableSize - 1 - i] = -values[i];
    }
    return values;
  }();
  return table;
}

struct Distribution {
  float mean = 0;
  float deviation = 0;
  friend bool operator<(const Distribution& a, const Distribution& b) {
    return std::tie(a.mean, a.deviation) < std::tie(b.mean, b.deviation);
  }
};

Distribution DistributionOf(std::string_view name, int64_t columns) {
  if (name.ends_with("norm.weight")) return {.mean = 1, .deviation = 0.05f};
  if (name.ends_with("bias")) return {.mean = 0, .deviation = 0.02f};
  const float balanced = 1 / std::sqrt(static_cast<float>(columns));
  const bool embedding = name.ends_with("embed_tokens.weight");
  return {.mean = 0, .deviation = std::clamp(balanced, embedding ? 0.02f : 0.001f, 1.0f)};
}

Table TableOf(const Distribution& distribution) {
  Table table;
  std::ranges::transform(StandardNormal(), table.begin(), [&](float normal) {
    return tensor::ToBf16(distribution.mean + distribution.deviation * normal);
  });
  return table;
}

// The elements of a tensor from `first` on.
void Fill(uint64_t key, const Table& table, uint64_t first, std::span<Bf16> values) {
  constexpr uint64_t kBlock = base::kElementsPerMix;
  for (size_t done = 0; done < values.size();) {
    const uint64_t index = first + done;
    const uint64_t bits = base::CounterTableBits(key, index / kBlock);
    const uint64_t begin = index % kBlock;
    const auto count = std::min<size_t>(kBlock - begin, values.size() - done);
    for (size_t i = 0; i < count; ++i)
      values[done + i] = table[base::CounterTableIndex(bits, static_cast<int>(begin + i))];
    done += count;
  }
}

class DummySource : public WeightSource {
 public:
  explicit DummySource(uint64_t seed) : seed_(seed) {}

  bool Has(std::string_view /*name*/) const override { return true; }

  base::Result<tensor::ConstView> Read(std::string_view name,
                                       std::span<const int64_t> shape) override {
    LONGSPAN_ASSIGN_OR_RETURN(const int64_t elements, CountElements(name, shape));
    LONGSPAN_ASSIGN_OR_RETURN(const std::span<Bf16> values, Hold(name, elements));
    Fill(KeyOf(name), TableFor(name, shape), 0, values);
    return DenseView(values.data(), tensor::DType::kBf16, shape);
  }

  base::Result<tensor::ConstView> ReadWindow(std::string_view name, std::span<const int64_t> shape,
                                             const MatrixWindow& window) override {
    LONGSPAN_RETURN_IF_ERROR(CountElements(name, shape).status());
    LONGSPAN_ASSIGN_OR_RETURN(const std::span<Bf16> values,
                              Hold(name, window.rows * window.columns));
    const auto columns = static_cast<size_t>(window.columns);
    for (int64_t row = 0; row < window.rows; ++row) {
      const int64_t first = (window.row_begin + row) * shape[1] + window.column_begin;
      Fill(KeyOf(name), TableFor(name, shape), static_cast<uint64_t>(first),
           values.subspan(static_cast<size_t>(row) * columns, columns));
    }
    return tensor::ConstView(values.data(), tensor::DType::kBf16, {window.rows, window.columns});
  }

  std::optional<CounterTensor> Counter(std::string_view name,
                                       std::span<const int64_t> shape) const override {
    return CounterTensor{KeyOf(name), TableFor(name, shape)};
  }

  void Release(std::string_view name) override {
    if (const auto found = held_.find(name); found != held_.end()) held_.erase(found);
  }

  int64_t bytes_read() const override { return bytes_read_; }

 private:
  // Memory for so many values, until the tensor is released.
  base::Result<std::span<Bf16>> Hold(std::string_view name, int64_t elements) {
    LONGSPAN_ASSIGN_OR_RETURN(
        tensor::Buffer buffer,
        tensor::AllocateHost(elements * tensor::SizeOf(tensor::DType::kBf16)));
    bytes_read_ += buffer.bytes();
    const std::span values(static_cast<Bf16*>(buffer.data()), static_cast<size_t>(elements));
    held_[std::string(name)].push_back(std::move(buffer));
    return values;
  }

  uint64_t KeyOf(std::string_view name) const {
    return base::MixBits(base::MixBits(seed_ + kGolden) + HashName(name));
  }

  // Few: matrices of one width have the same.
  const Table& TableFor(std::string_view name, std::span<const int64_t> shape) const {
    const Distribution distribution = DistributionOf(name, shape.back());
    const auto [found, is_new] = tables_.try_emplace(distribution);
    if (is_new) found->second = TableOf(distribution);
    return found->second;
  }

  static base::Result<int64_t> CountElements(std::string_view name,
                                             std::span<const int64_t> shape) {
    LONGSPAN_CHECK(!shape.empty() && shape.size() <= tensor::kMaxRank, "{} has {} dimensions", name,
                   shape.size());
    int64_t elements = 1;
    bool overflow = false;
    for (const int64_t size : shape) {
      LONGSPAN_CHECK(size >= 0, "{} has a dimension of {}", name, size);
      overflow |= __builtin_mul_overflow(elements, size, &elements);
    }
    if (overflow || elements > (int64_t{1} << 60))
      return base::InvalidArgument("tensor {} of shape [{}] is too large", Quoted(name),
                                   fmt::join(shape, ", "));
    return elements;
  }

  uint64_t seed_;
  int64_t bytes_read_ = 0;
  mutable std::map<Distribution, Table> tables_;
  std::map<std::string, std::vector<tensor::Buffer>, std::less<>> held_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeDummySource(uint64_t seed) {
  return std::make_unique<DummySource>(seed);
}

}  // namespace longspan::checkpoint
