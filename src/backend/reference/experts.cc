// Routing of rows to experts, and back.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/reference/kernels.h"
#include "backend/reference/logits.h"
#include "backend/reference/thread_scratch.h"

namespace longspan::backend::reference {
namespace {

// The softmax is monotone: the largest logits have the largest probabilities.
void RouteRow(const ops::RouterArgs& args, int64_t row) {
  const int64_t experts = args.logits.size(1);
  const int64_t choices = args.expert_ids.size(1);
  const float* logits = args.logits.row<float>(row);
  int32_t* ids = args.expert_ids.row<int32_t>(row);
  float* weights = args.expert_weights.row<float>(row);
  for (int64_t choice = 0; choice < choices; ++choice) {
    int64_t best = -1;
    for (int64_t expert = 0; expert < experts; ++expert) {
      if (std::find(ids, ids + choice, expert) != ids + choice) continue;
      if (best < 0 || Logit(logits[expert]) > Logit(logits[best])) best = expert;
    }
    ids[choice] = static_cast<int32_t>(best);
  }
  // Relative to the largest, which is the first choice.
  const auto relative = [&](int64_t expert) {
    return std::exp(Logit(logits[expert]) - Logit(logits[ids[0]]));
  };
  double sum = 0;
  if (args.normalize_weights)
    for (int64_t choice = 0; choice < choices; ++choice) sum += relative(ids[choice]);
  else
    for (int64_t expert = 0; expert < experts; ++expert) sum += relative(expert);
  for (int64_t choice = 0; choice < choices; ++choice)
    weights[choice] = static_cast<float>(relative(ids[choice]) / sum);
}

}  // namespace

void Router(tensor::ExecutionContext& context, const ops::RouterArgs& args) {
  Threads(context).ParallelFor(args.logits.size(0), [&](int64_t row, int) { RouteRow(args, row); });
}

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
  for (int64_t expert = 0; expert < experts; ++expert) begin[expert + 1] += begin[expert];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t choice = 0; choice < choices; ++choice) {
      const int32_t place = begin[args.expert_ids.row<int32_t>(row)[choice]]++;
      args.sorted_places.row<int32_t>(row)[choice] = place;
      source_rows[place] = static_cast<int32_t>(row);
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
        sum += static_cast<double>(weights[choice]) * args.x.row<float>(places[choice])[column];
      out[column] = static_cast<float>(sum);
    }
  });
}

}  // namespace longspan::backend::reference
