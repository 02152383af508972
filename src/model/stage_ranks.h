// What the ranks of a stage do together while they compute a step.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace longspan::model {

// The collective steps between the ops of a layer; of a stage with one rank they do nothing. Like
// ops they do not fail: what goes wrong between ranks is told where the step ends, as what a device
// reports is, and until then what they leave is unspecified.
class StageRanks {
 public:
  virtual ~StageRanks() = default;

  // x, dense, becomes the sum of the tensor-parallel ranks' x, the same bits at all of them.
  virtual void SumOverTensorRanks(const tensor::View& x) = 0;

  // x, dense, holds a block of counts[rank] elements of every context-parallel rank, in order; the
  // own one is filled. Posts that the others' come, which is sure after FinishGathers: until then x
  // stays as it is, and the rank computes on. Several may be under way.
  virtual void StartGather(const tensor::View& x, std::span<const int64_t> counts) = 0;
  // x holds a block of outgoing[rank] elements for every context-parallel rank, and y gets one of
  // incoming[rank] elements from it, both in order. Otherwise as StartGather.
  virtual void StartExchange(const tensor::View& x, std::span<const int64_t> outgoing,
                             const tensor::View& y, std::span<const int64_t> incoming) = 0;
  virtual void FinishGathers() = 0;
};

// A stage of one rank.
class LoneRank : public StageRanks {
 public:
  void SumOverTensorRanks(const tensor::View& /*x*/) override {}
  void StartGather(const tensor::View& /*x*/, std::span<const int64_t> /*counts*/) override {}
  void StartExchange(const tensor::View& /*x*/, std::span<const int64_t> /*outgoing*/,
                     const tensor::View& /*y*/, std::span<const int64_t> /*incoming*/) override {}
  void FinishGathers() override {}
};

}  // namespace longspan::model
