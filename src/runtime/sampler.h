// From the rows of the last stage to tokens, log-probabilities and logits.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/stage_model.h"
#include "ops/backend.h"
#include "plan/step_plan.h"
#include "plan/step_result.h"
#include "runtime/divided_head.h"
#include "runtime/rank_groups.h"
#include "runtime/step_tables.h"

namespace longspan::runtime {

// Keeps of every sequence how it samples and, where it has penalties, which tokens it has seen.
// Applies plans in order. One thread.
class Sampler {
 public:
  struct Shape {
    int64_t vocab_size = 0;  // of the whole model
    int64_t hidden_size = 0;
    int ranks = 1;  // that divide the vocabulary
  };

  // All ranks of the stage sample the same. `groups` must outlive it.
  Sampler(const ops::Backend& backend, const model::StageModel& model, const Shape& shape,
          RankGroups& groups)
      : backend_(backend), model_(model), groups_(groups), vocab_size_(shape.vocab_size) {
    if (shape.ranks > 1) divided_head_.emplace(backend, model, groups, shape.vocab_size);
  }

  // How many rows get their logits at once: bounds the memory of a large vocabulary.
  static constexpr int64_t kBlockRows = 64;

  // Workspace that Run takes for steps of up to `rows` rows.
  static int64_t ScratchBytes(int64_t rows, const Shape& shape, tensor::DType compute);

  // Forgets and starts sequences as the plan says.
  void Apply(const plan::StepPlan& plan);

  // residual [rows, hidden]; listed[i] is where the plan's i-th logits row is. Adds to `result` one
  // RowResult per logits row, and the rows after the final norm for those that return their hidden
  // state.
  base::Status Run(const model::Step& step, const plan::StepPlan& plan,
                   const tensor::ConstView& residual, std::span<const ListedRow> listed,
                   plan::StepResult& result);

 private:
  struct Sequence {
    spec::SamplingSpec sampling;
    std::map<int32_t, int32_t> history;  // token -> times in the output; empty without penalties
  };

  base::Status RunBlock(const model::Step& step, const plan::StepPlan& plan,
                        const tensor::ConstView& residual, std::span<const ListedRow> listed,
                        std::span<const uint32_t> slots, plan::StepResult& result);
  // By way of the host: few requests have a bias, and no backend needs an op for it.
  base::Status AddBias(const model::Step& step, const plan::StepPlan& plan,
                       std::span<const uint32_t> slots, const tensor::View& logits);
  // How many of the largest logits of a divided vocabulary decide what this row samples and
  // reports; 0 where all do.
  int64_t DecidingLogits(const plan::StepPlan& plan, uint32_t slot) const;
  base::Result<tensor::View> Logits(const model::Step& step, const tensor::ConstView& normed,
                                    tensor::Workspace::Scope& scope) const;
  base::Status SampleAmongBest(const model::Step& step, const plan::StepPlan& plan,
                               std::span<const uint32_t> slots, const BestTokens& best,
                               std::span<plan::RowResult> rows);
  base::Status Sample(const model::Step& step, const plan::StepPlan& plan,
                      std::span<const uint32_t> slots, const tensor::View& logits,
                      std::span<plan::RowResult> rows);
  base::Status Score(const model::Step& step, const plan::StepPlan& plan,
                     std::span<const uint32_t> slots, const tensor::ConstView& logits,
                     std::span<plan::RowResult> rows);
  // To each row the likeliest tokens, as many as its sequence wants.
  base::Status AddAlternatives(const model::Step& step, const plan::StepPlan& plan,
                               std::span<const uint32_t> slots, const tensor::ConstView& logits,
                               std::span<plan::RowResult> rows);
  const Sequence& SequenceOf(const plan::StepPlan& plan, uint32_t slot) const;

  const ops::Backend& backend_;
  const model::StageModel& model_;
  RankGroups& groups_;
  int64_t vocab_size_;
  std::optional<DividedHead> divided_head_;  // where several ranks have the vocabulary
  std::unordered_map<plan::SequenceId, Sequence> sequences_;
};

}  // namespace longspan::runtime
