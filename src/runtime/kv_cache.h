// The bytes of a stage's KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "ops/backend.h"
#include "plan/layer_split.h"
#include "spec/model.h"
#include "tensor/tensor.h"

namespace longspan::runtime {

// The planes (kv/kv_layout.h) of the layers that a stage owns, by page: [pages, heads, page_size,
// dim].
class KvCache {
 public:
  struct Shape {
    int64_t pages = 0;
    int page_size = 0;
    tensor::DType dtype = tensor::DType::kF32;
  };
  static base::Result<KvCache> Allocate(const ops::Backend& backend, const spec::ModelSpec& model,
                                        std::span<const plan::LayerRange> ranges,
                                        const Shape& shape);

  // Writes pseudo-random numbers in [-1, 1) everywhere, the same ones in every page.
  base::Status FillSynthetic(const ops::Backend& backend, tensor::Queue& queue);

  // Bytes that one page takes in these layers.
  static int64_t BytesPerPage(const spec::ModelSpec& model,
                              std::span<const plan::LayerRange> ranges, int page_size,
                              tensor::DType dtype);

  // The layers of the range-th range, in order.
  std::span<const model::LayerCache> Layers(size_t range) const { return layers_[range]; }

 private:
  std::vector<tensor::Buffer> buffers_;
  std::vector<std::vector<model::LayerCache>> layers_;
};

}  // namespace longspan::runtime
