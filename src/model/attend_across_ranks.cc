#include "model/attend_across_ranks.h"

namespace longspan::model {

std::vector<tensor::ConstView> DividedAttention::GatherQueries(
    std::span<const tensor::ConstView> queries) {
  std::vector<tensor::ConstView> all;
  for (const tensor::ConstView& x : queries) all.emplace_back(exchange_.StartGather(x));
  exchange_.Finish();
  return all;
}

PartOfAttention DividedAttention::TakePart(const tensor::View& out) {
  const int64_t rows = exchange_.all_rows();
  return {.out = scratch_.Take(out.dtype(), {rows, out.size(1), out.size(2)}),
          .exp_sums = scratch_.Take(tensor::DType::kF32, {rows, out.size(1), 2})};
}

void DividedAttention::Merge(const PartOfAttention& part, const tensor::View& out) {
  const tensor::View parts = exchange_.StartToOwners(part.out);
  const tensor::View exp_sums = exchange_.StartToOwners(part.exp_sums);
  exchange_.Finish();
  ops::Dispatch(step_.context, step_.ops.merge_attention,
                {.parts = parts, .exp_sums = exp_sums, .out = out});
}

int64_t DividedAttentionBytes(const StepBounds& bounds, int64_t query_elements,
                              int64_t out_elements, int64_t heads) {
  if (bounds.sharing_ranks == 0) return 0;
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t element = tensor::SizeOf(bounds.compute);
  const int64_t own = bounds.sharing_ranks * bounds.rows;
  // Two kinds of queries at most, each with its padding.
  return padded(bounds.gathered_rows * query_elements * element) + padded(1) +
         padded(bounds.gathered_rows * out_elements * element) +
         padded(bounds.gathered_rows * heads * 8) + padded(own * out_elements * element) +
         padded(own * heads * 8);
}

}  // namespace longspan::model
