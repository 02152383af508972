// Rows that context-parallel ranks hand each other where they divide the cache.
#pragma once

#include <span>
#include <vector>

#include "model/step.h"
#include "tensor/workspace.h"

namespace longspan::model {

// Of a step of several ranks. Takes memory from `scratch` and leaves it to that; what it gives out
// is there after Finish.
class RowExchange {
 public:
  RowExchange(const Step& step, tensor::Workspace::Scope& scratch)
      : step_(step), scratch_(scratch) {}

  // [own rows, heads, dim] -> those of all ranks, rank by rank.
  tensor::View StartGather(const tensor::ConstView& x);
  // [all rows, ...] -> [ranks, own rows, ...]: what every rank has of this rank's rows.
  tensor::View StartToOwners(const tensor::View& x);
  // i32 [ranks, own rows] -> [all rows]: what the rank of every row has for this rank.
  tensor::View StartFromOwners(const tensor::View& x);
  void Finish() { step_.ranks.FinishGathers(); }

  int64_t ranks() const { return static_cast<int64_t>(step_.gathered.counts.size()); }
  int64_t own_rows() const {
    return step_.gathered.counts[static_cast<size_t>(step_.gathered.rank)];
  }
  int64_t all_rows() const;

 private:
  std::vector<int64_t> OfEveryRank(int64_t elements) const {
    return std::vector<int64_t>(static_cast<size_t>(ranks()), elements);
  }

  const Step& step_;
  tensor::Workspace::Scope& scratch_;
};

}  // namespace longspan::model
