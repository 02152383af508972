// The kernel table of an instruction set; included by kernels_*.cc only.
#pragma once

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/expanded_attention_kernel.h"
#include "backend/cpu/few_rows_attention.h"
#include "backend/cpu/index_kernel.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/product_kernel.h"
#include "backend/cpu/row_kernels.h"

namespace longspan::backend::cpu {

// Every V is used in one translation unit only, so that each instance is compiled with the flags of
// its own instruction set.
template <typename V>
constexpr KernelTable MakeKernels(const char* name) {
  return {
      .name = name,
      .product = {Product<V, false>, Product<V, true>},
      .attention = {{AttendTile<V, float, float>, AttendTile<V, float, Bfloat>},
                    {AttendTile<V, Bfloat, float>, AttendTile<V, Bfloat, Bfloat>}},
      .merge_segment = MergeSegment<V>,
      .write_attention = {WriteAttention<V, float>, WriteAttention<V, Bfloat>},
      .expanded_attention = {{AttendExpandedTile<V, float, float>,
                              AttendExpandedTile<V, float, Bfloat>},
                             {AttendExpandedTile<V, Bfloat, float>,
                              AttendExpandedTile<V, Bfloat, Bfloat>}},
      .index_scores = {{IndexScores<V, float, float>, IndexScores<V, float, Bfloat>},
                       {IndexScores<V, Bfloat, float>, IndexScores<V, Bfloat, Bfloat>}},
      .convert = {{Convert<V, float, float>, Convert<V, float, Bfloat>},
                  {Convert<V, Bfloat, float>, Convert<V, Bfloat, Bfloat>}},
      .rms_norm = {RmsNormRow<V, float>, RmsNormRow<V, Bfloat>},
      .layer_norm = {LayerNormRow<V, float>, LayerNormRow<V, Bfloat>},
      .add = {AddRow<V, float>, AddRow<V, Bfloat>},
      .silu_mul = {SiluMulRow<V, float>, SiluMulRow<V, Bfloat>},
      .rotate_halves = {RotateHalves<V, float>, RotateHalves<V, Bfloat>},
      .combine = {Combine<V, float>, Combine<V, Bfloat>},
      .exp_sum = ExpSum<V>,
      .peak = {Peak<V, false>, Peak<V, true>},
  };
}

}  // namespace longspan::backend::cpu
