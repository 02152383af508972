// What the ranks of a stage do together while they compute a step.
#pragma once

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
};

// A stage of one rank.
class LoneRank : public StageRanks {
 public:
  void SumOverTensorRanks(const tensor::View& /*x*/) override {}
};

}  // namespace longspan::model
