#include "checkpoint/dummy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/mix_bits.h"
#include "checkpoint/dense_view.h"
#include "checkpoint/quoted.h"
#include "tensor/buffer.h"

namespace longspan::checkpoint {
namespace {

using tensor::Bf16;

// A value is drawn from this many equally likely ones: the table of one tensor stays in the first
// cache.
constexpr int kTableBits = 12;
constexpr int kTableSize = 1 << kTableBits;
constexpr int kValuesPerMix = 4;
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
};

Distribution DistributionOf(std::string_view name, int64_t columns) {
  if (name.ends_with("norm.weight")) return {.mean = 1, .deviation = 0.05f};
  if (name.ends_with("bias")) return {.mean = 0, .deviation = 0.02f};
  const float balanced = 1 / std::sqrt(static_cast<float>(columns));
  const bool embedding = name.ends_with("embed_tokens.weight");
  return {.mean = 0, .deviation = std::clamp(balanced, embedding ? 0.02f : 0.001f, 1.0f)};
}

// Element i is table[lane i % 4 of the mix of block i / 4].
void Fill(uint64_t key, const Distribution& distribution, std::span<Bf16> values) {
  std::array<Bf16, kTableSize> table;
  std::ranges::transform(StandardNormal(), table.begin(), [&](float normal) {
    return tensor::ToBf16(distribution.mean + distribution.deviation * normal);
  });
  const auto pick = [&table](uint64_t bits, size_t lane) {
    return table[(bits >> (16 * lane + 16 - kTableBits)) & (kTableSize - 1)];
  };
  const size_t blocks = values.size() / kValuesPerMix;
  Bf16* out = values.data();
  for (size_t block = 0; block < blocks; ++block, out += kValuesPerMix) {
    const uint64_t bits = base::MixBits(key + block * kGolden);
    for (size_t lane = 0; lane < kValuesPerMix; ++lane) out[lane] = pick(bits, lane);
  }
  const uint64_t bits = base::MixBits(key + blocks * kGolden);
  for (size_t lane = 0; lane < values.size() % kValuesPerMix; ++lane) out[lane] = pick(bits, lane);
}

class DummySource : public WeightSource {
 public:
  explicit DummySource(uint64_t seed) : seed_(seed) {}

  bool Has(std::string_view /*name*/) const override { return true; }

  base::Result<tensor::ConstView> Read(std::string_view name,
                                       std::span<const int64_t> shape) override {
    LONGSPAN_ASSIGN_OR_RETURN(const int64_t elements, CountElements(name, shape));
    LONGSPAN_ASSIGN_OR_RETURN(
        tensor::Buffer buffer,
        tensor::AllocateHost(elements * tensor::SizeOf(tensor::DType::kBf16)));
    const uint64_t key = base::MixBits(base::MixBits(seed_ + kGolden) + HashName(name));
    Fill(key, DistributionOf(name, shape.back()),
         {static_cast<Bf16*>(buffer.data()), static_cast<size_t>(elements)});
    const auto view = DenseView(buffer.data(), tensor::DType::kBf16, shape);
    bytes_read_ += view.bytes();
    held_[std::string(name)].push_back(std::move(buffer));
    return view;
  }

  void Release(std::string_view name) override {
    if (const auto found = held_.find(name); found != held_.end()) held_.erase(found);
  }

  int64_t bytes_read() const override { return bytes_read_; }

 private:
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
  std::map<std::string, std::vector<tensor::Buffer>, std::less<>> held_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeDummySource(uint64_t seed) {
  return std::make_unique<DummySource>(seed);
}

}  // namespace longspan::checkpoint
