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

base::Status FillPlane(const ops::Backend& backend, tensor::Queue& queue,
                       const tensor::View& pages) {
  const std::vector<float> page = PseudoRandom(pages.elements() / pages.size(0));
  std::vector<tensor::Bf16> rounded(page.size());
  std::transform(page.begin(), page.end(), rounded.begin(), tensor::ToBf16);
  const auto bytes = pages.dtype() == tensor::DType::kF32 ? std::as_bytes(std::span(page))
                                                          : std::as_bytes(std::span(rounded));
  for (int64_t i = 0; i < pages.size(0); ++i)
    LONGSPAN_RETURN_IF_ERROR(backend.Upload(queue, bytes, pages.Rows(i, 1)));
  return base::OkStatus();
}

}  // namespace

base::Result<KvCache> KvCache::Allocate(const ops::Backend& backend, const spec::ModelSpec& model,
                                        std::span<const plan::LayerRange> ranges,
                                        const Shape& shape) {
  const std::vector<kv::CachePlane> planes = kv::CachePlanes(model);
  KvCache cache;
  for (const plan::LayerRange& range : ranges) {
    auto& layers = cache.layers_.emplace_back();
    for (int layer = range.begin; layer < range.end; ++layer) {
      model::LayerCache& views = layers.emplace_back();
      for (size_t i = 0; i < planes.size(); ++i) {
        const auto& [heads, dim] = planes[i];
        LONGSPAN_ASSIGN_OR_RETURN(auto buffer,
                                  backend.Allocate(shape.pages * shape.page_size * heads * dim *
                                                   tensor::SizeOf(shape.dtype)));
        views.planes[i] = buffer.AsView(shape.dtype, {shape.pages, heads, shape.page_size, dim});
        cache.buffers_.push_back(std::move(buffer));
      }
    }
  }
  return cache;
}

base::Status KvCache::FillSynthetic(const ops::Backend& backend, tensor::Queue& queue) {
  for (const auto& layers : layers_)
    for (const model::LayerCache& layer : layers)
      for (const tensor::View& plane : layer.planes)
        if (!plane.empty()) LONGSPAN_RETURN_IF_ERROR(FillPlane(backend, queue, plane));
  return base::OkStatus();
}

int64_t KvCache::BytesPerPage(const spec::ModelSpec& model,
                              std::span<const plan::LayerRange> ranges, int page_size,
                              tensor::DType dtype) {
  int64_t layers = 0;
  for (const plan::LayerRange& range : ranges) layers += range.size();
  return layers * page_size * kv::BytesPerTokenLayer(model, tensor::SizeOf(dtype));
}

}  // namespace longspan::runtime
