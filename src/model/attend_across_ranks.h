// Attention of a step whose cache may be divided over context-parallel ranks.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "model/row_exchange.h"
#include "model/step.h"
#include "tensor/workspace.h"

namespace longspan::model {

// Attention of all ranks' rows to the pages of this rank.
struct PartOfAttention {
  tensor::View out;       // [all rows, heads, dim], rank by rank
  tensor::View exp_sums;  // f32 [all rows, heads, 2], see ops/merge_attention.h
};

// The steps around the attention to a divided cache. Takes memory from `scratch` and leaves it to
// that.
class DividedAttention {
 public:
  DividedAttention(const Step& step, tensor::Workspace::Scope& scratch)
      : step_(step), scratch_(scratch), exchange_(step, scratch) {}

  // [own rows, heads, dim] each -> those of all ranks, rank by rank.
  std::vector<tensor::ConstView> GatherQueries(std::span<const tensor::ConstView> queries);
  // Memory for what becomes `out`, [own rows, heads, dim].
  PartOfAttention TakePart(const tensor::View& out);
  // Every rank gives the others the parts of their rows, and merges those of its own.
  void Merge(const PartOfAttention& part, const tensor::View& out);

 private:
  const Step& step_;
  tensor::Workspace::Scope& scratch_;
  RowExchange exchange_;
};

// Workspace that attention to a divided cache takes for a step's rows with so many elements of
// queries and of results, and `heads`.
int64_t DividedAttentionBytes(const StepBounds& bounds, int64_t query_elements,
                              int64_t out_elements, int64_t heads);

// Calls attend(queries, tables, out, exp_sums), which dispatches an attention op, for the rows of
// the step and `out` without exp_sums; or where the cache is divided for the rows of all ranks and
// the pages of this one, and merges. `queries` are [rows, heads, dim] each.
template <typename Attend>
void AttendAcrossRanks(const Step& step, std::initializer_list<tensor::ConstView> queries,
                       const tensor::View& out, const Attend& attend) {
  const std::span<const tensor::ConstView> own(queries.begin(), queries.size());
  if (!step.gathered.sharded) return attend(own, step.tables, out, tensor::View());
  tensor::Workspace::Scope scratch(step.context.workspace);
  DividedAttention divided(step, scratch);
  const std::vector<tensor::ConstView> all = divided.GatherQueries(own);
  const PartOfAttention part = divided.TakePart(out);
  attend(std::span(all), step.gathered.tables, part.out, part.exp_sums);
  divided.Merge(part, out);
}

}  // namespace longspan::model
