// Logits whose vocabulary is divided over tensor-parallel ranks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/stage_model.h"
#include "ops/backend.h"
#include "runtime/rank_groups.h"
#include "tensor/workspace.h"

namespace longspan::runtime {

// The tokens of the whole vocabulary that may be among a row's largest logits, in ascending order,
// and what turns their logits into log-probabilities. The same at all ranks.
struct BestTokens {
  int64_t count = 0;             // of every row
  std::vector<int32_t> tokens;   // [rows, count]
  std::vector<float> logits;     // [rows, count]
  std::vector<double> log_sums;  // [rows]: log(sum of exp) over the whole vocabulary

  // A row's tokens with their log-probabilities, descending, ties to the lower token.
  std::vector<std::pair<int32_t, float>> Logprobs(size_t row) const;
};

// Of `groups.tensor_group()` every rank has the same normed rows and calls the same members in the
// same order. One thread.
class DividedHead {
 public:
  DividedHead(const ops::Backend& backend, const model::StageModel& model, RankGroups& groups,
              int64_t vocab_size)
      : backend_(backend), model_(model), groups_(groups), vocab_size_(vocab_size) {}

  int64_t share_size() const { return vocab_size_ / groups_.tensor_group()->size(); }

  // f32 [rows, vocab], in the scope's memory: the ranks exchange all they have.
  base::Result<tensor::View> AllLogits(const model::Step& step, const tensor::ConstView& normed,
                                       tensor::Workspace::Scope& scope) const;

  // The `count` largest logits of every row are among these: the ranks exchange so many tokens
  // each, at most share_size().
  base::Result<BestTokens> Best(const model::Step& step, const tensor::ConstView& normed,
                                int64_t count) const;

 private:
  const ops::Backend& backend_;
  const model::StageModel& model_;
  RankGroups& groups_;
  int64_t vocab_size_;
};

}  // namespace longspan::runtime
