// The experts' part of a mixture-of-experts layer: order (row, choice) pairs by expert, multiply
// group by group, and add the results up per row.
#pragma once

#include <span>

#include "ops/packed_weight.h"
#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// Pairs are numbered row * k + choice. They are sorted by expert, in pair order within an expert. A
// pair without an expert here (-1: another rank's) has no place among them; what follows the last
// sorted pair in source_rows is unspecified.
struct ExpertOrderArgs {
  tensor::ConstView expert_ids;  // i32 [rows, k], each in [0, experts) or -1
  tensor::View expert_begin;     // i32 [experts + 1]: where every expert's sorted pairs begin
  tensor::View source_rows;      // i32 [rows * k]: row of the i-th sorted pair
  // i32 [rows, k]: where pair (row, choice) stands in the sorted order, or -1.
  tensor::View sorted_places;
};
using ExpertOrderOp = void (*)(tensor::ExecutionContext&, const ExpertOrderArgs&);

// out[i] = x[source_rows[i]] W_e^T for the sorted pairs i of every expert e. As in Linear, a row's
// result does not depend on which rows come with it. Rows of out that are no pair's keep what they
// have.
struct GroupedLinearArgs {
  tensor::ConstView x;                           // f32 or bf16 [m, columns]
  std::span<const PackedWeight* const> weights;  // one per expert, all of one shape
  tensor::ConstView expert_begin;                // i32 [experts + 1]
  tensor::ConstView source_rows;                 // i32 [pairs], or empty: i itself
  tensor::View out;                              // of x's dtype [pairs or more, weight rows]
};
using GroupedLinearOp = void (*)(tensor::ExecutionContext&, const GroupedLinearArgs&);

// out[row] = sum over choices, in order, of weight[row, choice] * x[sorted_places[row, choice]], in
// f32; a choice without a place (-1) adds nothing.
struct ExpertCombineArgs {
  tensor::ConstView x;               // f32 or bf16 [pairs or more, columns], sorted by expert
  tensor::ConstView sorted_places;   // i32 [rows, k]
  tensor::ConstView expert_weights;  // f32 [rows, k]
  tensor::View out;                  // of x's dtype [rows, columns]
};
using ExpertCombineOp = void (*)(tensor::ExecutionContext&, const ExpertCombineArgs&);

void CheckArgs(const ExpertOrderArgs& args);
void CheckArgs(const GroupedLinearArgs& args);
void CheckArgs(const ExpertCombineArgs& args);

}  // namespace longspan::ops
