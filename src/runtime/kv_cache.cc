#include "runtime/kv_cache.h"

#include "kv/kv_layout.h"

namespace longspan::runtime {

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

int64_t KvCache::BytesPerPage(const spec::ModelSpec& model,
                              std::span<const plan::LayerRange> ranges, int page_size,
                              tensor::DType dtype) {
  int64_t layers = 0;
  for (const plan::LayerRange& range : ranges) layers += range.size();
  return layers * page_size * kv::BytesPerTokenLayer(model.attention, tensor::SizeOf(dtype));
}

}  // namespace longspan::runtime
