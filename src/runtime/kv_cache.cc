#include "runtime/kv_cache.h"

#include <algorithm>

#include "base/mix_bits.h"
#include "kv/kv_layout.h"

namespace longspan::runtime {
namespace {

std::vector<float> PseudoRandom(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t index = 0;
  for (float& value : values)
    value = static_cast<float>(base::MixBits(++index) >> 40) * 0x1p-23f - 1;
  return values;
}

base::Status FillPages(const ops::Backend& backend, tensor::Queue& queue,
                       std::span<const std::byte> page, const tensor::View& pages) {
  for (int64_t i = 0; i < pages.size(0); ++i)
    LONGSPAN_RETURN_IF_ERROR(backend.Upload(queue, page, pages.Rows(i, 1)));
  return base::OkStatus();
}

}  // namespace

base::Result<KvCache> KvCache::Allocate(const ops::Backend& backend, const spec::ModelSpec& model,
                                        std::span<const plan::LayerRange> ranges,
                                        const Shape& shape) {
  const spec::AttentionSpec& attention = model.attention;
  const int64_t bytes = shape.pages * shape.page_size *
                        kv::BytesPerTokenLayer(attention, tensor::SizeOf(shape.dtype)) / 2;
  KvCache cache;
  const auto add = [&]() -> base::Result<tensor::View> {
    LONGSPAN_ASSIGN_OR_RETURN(auto buffer, backend.Allocate(bytes));
    const auto view = buffer.AsView(
        shape.dtype, {shape.pages, attention.kv_heads, shape.page_size, attention.head_dim});
    cache.buffers_.push_back(std::move(buffer));
    return view;
  };
  for (const plan::LayerRange& range : ranges) {
    auto& layers = cache.layers_.emplace_back();
    for (int layer = range.begin; layer < range.end; ++layer) {
      LONGSPAN_ASSIGN_OR_RETURN(const auto keys, add());
      LONGSPAN_ASSIGN_OR_RETURN(const auto values, add());
      layers.push_back({keys, values});
    }
  }
  return cache;
}

base::Status KvCache::FillSynthetic(const ops::Backend& backend, tensor::Queue& queue) {
  for (const auto& layers : layers_) {
    for (const model::LayerCache& layer : layers) {
      const std::vector<float> page = PseudoRandom(layer.keys.Rows(0, 1).elements());
      std::vector<tensor::Bf16> rounded(page.size());
      std::transform(page.begin(), page.end(), rounded.begin(), tensor::ToBf16);
      const auto bytes = layer.keys.dtype() == tensor::DType::kF32
                             ? std::as_bytes(std::span(page))
                             : std::as_bytes(std::span(rounded));
      LONGSPAN_RETURN_IF_ERROR(FillPages(backend, queue, bytes, layer.keys));
      LONGSPAN_RETURN_IF_ERROR(FillPages(backend, queue, bytes, layer.values));
    }
  }
  return base::OkStatus();
}

int64_t KvCache::BytesPerPage(const spec::ModelSpec& model,
                              std::span<const plan::LayerRange> ranges, int page_size,
                              tensor::DType dtype) {
  int64_t layers = 0;
  for (const plan::LayerRange& range : ranges) layers += range.size();
  return layers * page_size * kv::BytesPerTokenLayer(model.attention, tensor::SizeOf(dtype));
}

}  // namespace longspan::runtime
