// DeepSeek Sparse Attention's indexer (DeepSeek-AI 2025, arXiv:2512.02556): which positions a
// layer's attention reads.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/cache_writes.h"
#include "model/step.h"
#include "model/weight_loader.h"
#include "spec/model.h"

namespace longspan::model {

// Immutable after Load.
class Indexer {
 public:
  // `prefix`: "model.layers.3.self_attn.indexer.".
  static base::Result<std::unique_ptr<Indexer>> Load(const spec::ModelSpec& model,
                                                     const std::string& prefix,
                                                     WeightLoader& loader);

  int64_t top_k() const { return spec_.top_k; }
  int64_t key_size() const { return spec_.head_dim; }

  // Starts to write the keys of x [rows, hidden].
  void StartWrites(const Step& step, const tensor::ConstView& x, CacheWrites& writes) const;

  // How many rows Select makes lists for: those of the step; where ranks divide the cache, those of
  // all of them, or none where every row of the step attends to all positions.
  int64_t ListedRows(const Step& step) const;
  // x [rows, hidden] and the normed latent of the queries [rows, query_rank] -> i32 [ListedRows,
  // top_k] as index_select leaves them, or those of them that are in this rank's pages
  // (ops/divided_index_select.h). The rows' own keys are in `cache` already. False where something
  // went wrong between the ranks, and `selected` is not to be used.
  bool Select(const Step& step, const tensor::ConstView& x, const tensor::ConstView& query_latent,
              const tensor::ConstView& cache, const tensor::View& selected) const;

  // Workspace that lists take.
  int64_t ListBytes(const StepBounds& bounds) const;
  // And that either of the above takes, without what its ops take.
  int64_t ScratchBytes(const StepBounds& bounds) const;

 private:
  explicit Indexer(const spec::IndexerSpec& spec) : spec_(spec) {}

  void Rotate(const Step& step, const tensor::View& heads) const;

  spec::IndexerSpec spec_;
  std::unique_ptr<ops::PackedWeight> query_;
  std::unique_ptr<ops::PackedWeight> key_;
  std::unique_ptr<ops::PackedWeight> head_weights_;
  tensor::Tensor key_norm_weight_;
  tensor::Tensor key_norm_bias_;
};

}  // namespace longspan::model
