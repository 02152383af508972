// The experts that a rank has, and the rows that are routed to them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/step.h"
#include "model/weight_loader.h"
#include "spec/model.h"

namespace longspan::model {

// The k choices of every row: an expert's number, or -1, and its weight.
struct ExpertChoices {
  tensor::ConstView experts;  // i32 [rows, k]
  tensor::ConstView weights;  // f32 [rows, k]
  int64_t pairs = 0;          // how many choices are not -1
};

// Immutable after loading.
class RoutedExperts {
 public:
  // Reads the rank's experts only (plan/expert_share.h). `prefix`: "model.layers.3.mlp.".
  base::Status Load(const spec::ModelSpec& model, const std::string& prefix, WeightLoader& loader);

  // out[row] = the sum over the row's choices, in order, of weight x expert(x[row]). Experts are
  // numbered from the rank's first; x and out [rows, hidden] in the compute type.
  void Forward(const Step& step, const tensor::ConstView& x, const ExpertChoices& choices,
               const tensor::View& out) const;

  // Workspace that Forward takes for so many rows, without what its ops take.
  int64_t ScratchBytes(int64_t rows, int64_t choices, tensor::DType compute) const;

 private:
  int64_t count() const { return static_cast<int64_t>(gate_up_.size()); }

  int64_t hidden_ = 0;
  int64_t columns_ = 0;
  std::vector<std::unique_ptr<ops::PackedWeight>> weights_;  // owns what the two lists point to
  std::vector<const ops::PackedWeight*> gate_up_;
  std::vector<const ops::PackedWeight*> down_;
};

}  // namespace longspan::model
