// What a layer does after attention; dense or a mixture of experts.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/step.h"
#include "model/weight_loader.h"
#include "spec/model.h"

namespace longspan::model {

// Immutable after loading.
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // x and out [rows, hidden] in the compute type. Of several tensor-parallel ranks each has its
  // columns' part of a sum.
  virtual void Forward(const Step& step, const tensor::ConstView& x,
                       const tensor::View& out) const = 0;
  // Workspace that Forward takes, without what its ops take.
  virtual int64_t ScratchBytes(int64_t rows, tensor::DType compute) const = 0;
};

// down(silu(gate(x)) * up(x)).
struct MlpShape {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool bias = false;
};
// `prefix`: "model.layers.3.mlp.".
base::Result<std::unique_ptr<FeedForward>> LoadMlp(const MlpShape& shape, const std::string& prefix,
                                                   WeightLoader& loader);

// A router and its experts, each an MLP without bias, and the shared experts, as one such MLP.
base::Result<std::unique_ptr<FeedForward>> LoadMoe(const spec::ModelSpec& model,
                                                   const std::string& prefix, WeightLoader& loader);

}  // namespace longspan::model
