// Sorting of rows by expert, and their sums.
#include <algorithm>

#include "backend/reference/kernels.h"
#include "backend/reference/thread_scratch.h"

namespace longspan::backend::reference {
// A counting sort.
void ExpertOrder(tensor::ExecutionContext&, const ops::ExpertOrderArgs& args) {
  const int64_t rows = args.expert_ids.size(0);
  const int64_t choices = args.expert_ids.size(1);
  const int64_t experts = args.expert_begin.size(0) - 1;
  auto* begin = args.expert_begin.data<int32_t>();
  auto* source_rows = args.source_rows.data<int32_t>();
  std::fill_n(begin, experts + 1, 0);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t choice = 0; choice < choices; ++choice)
      ++begin[args.expert_ids.row<int32_t>(row)[choice] + 1];
  begin[0] = 0;  // the pairs without an expert were counted here
  for (int64_t expert = 0; expert < experts; ++expert) begin[expert + 1] += begin[expert];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t choice = 0; choice < choices; ++choice) {
      const int32_t expert = args.expert_ids.row<int32_t>(row)[choice];
      const int32_t place = expert < 0 ? -1 : begin[expert]++;
      args.sorted_places.row<int32_t>(row)[choice] = place;
      if (place >= 0) source_rows[place] = static_cast<int32_t>(row);
    }
  }
  // Every begin has moved on to the next one's.
  std::copy_backward(begin, begin + experts, begin + experts + 1);
  begin[0] = 0;
}

void ExpertCombine(tensor::ExecutionContext& context, const ops::ExpertCombineArgs& args) {
  const int64_t choices = args.sorted_places.size(1);
  Threads(context).ParallelFor(args.out.size(0), [&](int64_t row, int) {
    const int32_t* places = args.sorted_places.row<int32_t>(row);
    const float* weights = args.expert_weights.row<float>(row);
    float* out = args.out.row<float>(row);
    for (int64_t column = 0; column < args.out.size(1); ++column) {
      double sum = 0;
      for (int64_t choice = 0; choice < choices; ++choice)
        if (places[choice] >= 0)
          sum += static_cast<double>(weights[choice]) * args.x.row<float>(places[choice])[column];
      out[column] = static_cast<float>(sum);
    }
  });
}

}  // namespace longspan::backend::reference
