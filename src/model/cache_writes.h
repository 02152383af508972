// What the new rows of a step keep, on its way into the cache of a layer.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "model/step.h"
#include "tensor/workspace.h"

namespace longspan::model {

// What every row keeps in one plane of the cache.
struct KeptRows {
  int plane = 0;        // kv/kv_layout.h
  tensor::ConstView x;  // [rows, heads, dim]
};

// Writes to the cache of a layer what the rows of a step keep, and where context-parallel ranks
// divide the step what the rows of the others keep, if this rank has their pages: it comes in the
// cache's type, and is written straight from there to its pages. A layer calls Start as soon as it
// has something, once for every plane, computes on, and calls Finish before it reads the cache.
class CacheWrites {
 public:
  // Takes memory from `scratch` and leaves it to that. All must outlive it.
  CacheWrites(const Step& step, const LayerCache& cache, tensor::Workspace::Scope& scratch);

  void Start(std::initializer_list<KeptRows> kept);
  void Finish();

  // What is taken where a row keeps so many elements in all planes.
  static int64_t ScratchBytes(const StepBounds& bounds, int64_t row_elements) {
    const int64_t sent = bounds.sharing_ranks > 0 ? bounds.rows : 0;
    return tensor::Workspace::PaddedBytes((bounds.gathered_rows + sent) * row_elements *
                                          tensor::SizeOf(bounds.cache));
  }

 private:
  // The blocks of all ranks, one after another; in a block the rows of one plane after another's.
  struct Gather {
    std::vector<int> planes;
    std::span<const int64_t> counts;  // rows of the blocks
    tensor::View blocks;
  };

  bool alone() const { return step_.gathered.counts.empty(); }
  int64_t RowElements(int plane) const {
    return cache_.planes[plane].size(1) * cache_.planes[plane].size(3);
  }
  tensor::View TakeElements(int64_t count);
  void StartGather(std::initializer_list<KeptRows> kept);
  void StartToOwners(const KeptRows& rows);
  void WriteBlocks(const Gather& gather);

  const Step& step_;
  const LayerCache& cache_;
  tensor::View buffer_;  // of all gathers
  int64_t used_ = 0;
  std::vector<Gather> gathers_;
};

}  // namespace longspan::model
