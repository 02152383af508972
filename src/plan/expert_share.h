// What an expert-parallel rank has of a mixture of experts.
#pragma once

#include "base/status.h"
#include "spec/mesh.h"
#include "spec/model.h"

namespace longspan::plan {

// One of `size` ranks of a stage that have all experts among them (spec::ExpertLanes): every expert
// is at one of them. Where a tensor-parallel group has several such ranks, all of them begin with
// the same rows, and each sends a part of these; where it has several such groups, they divide the
// columns of every expert among themselves. Context-parallel ranks beyond the group repeat it, as
// they do all weights.
struct ExpertShare {
  int rank = 0;
  int size = 1;
  int column_parts = 1;  // of an expert's columns; the piece is TensorShare::PieceOf(column_parts)
  int row_part = 0;      // of the rows that this rank sends
  int row_parts = 1;

  // The rank's experts are [first(experts), first(experts) + count(experts)).
  constexpr int count(int experts) const { return experts / size; }
  constexpr int first(int experts) const { return rank * count(experts); }
  // Of a model as one tensor-parallel rank computes it (plan/tensor_share.h), whose experts have
  // `columns`: the columns of an expert here.
  constexpr int64_t ColumnsOf(int64_t columns) const { return columns * row_parts; }
  // From how many ranks with rows of their own the group's rows come.
  constexpr int row_sources() const { return size / row_parts; }

  // Whether this rank sends the row of the token at a position. By that alone, so that the sums of
  // a row are the same whatever rows come with it; and mixed, so that no way of dividing tokens
  // over context-parallel ranks leaves one rank all of them.
  bool Sends(int32_t position) const;

  friend bool operator==(const ExpertShare&, const ExpertShare&) = default;
};

ExpertShare ExpertShareOf(const spec::Mesh& mesh, int rank);

// Refuses an --ep-size that does not divide the experts, or where there are none, and names the
// largest one below it that does, and that CheckMesh accepts.
base::Status CheckExpertShares(const spec::ModelSpec& model, const spec::Mesh& mesh);

}  // namespace longspan::plan
