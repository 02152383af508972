// What ranks that divide a cache keep of the best positions that each of them has found.
#include <algorithm>

#include "backend/cpu/cpu_ops.h"

namespace longspan::backend::cpu {

void IndexMerge(tensor::ExecutionContext& context, const ops::IndexMergeArgs& args) {
  const int64_t parts = args.scores.size(0);
  const int64_t rows = args.scores.size(1);
  const int64_t top_k = args.scores.size(2);
  const auto* scores = args.scores.data<float>();
  const auto* positions = args.positions.data<int32_t>();
  ForRows(context, rows, parts * top_k, [&](int64_t row) {
    auto* counts = args.counts.data<int32_t>() + row;
    for (int64_t part = 0; part < parts; ++part) counts[part * rows] = 0;
    for (int64_t taken = 0; taken < top_k; ++taken) {
      int64_t best_part = -1;
      int64_t best = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t next = counts[part * rows];
        const int64_t place = (part * rows + row) * top_k + next;
        if (next == top_k || positions[place] < 0) continue;
        if (best_part >= 0 &&
            (scores[place] < scores[best] ||
             (scores[place] == scores[best] && positions[place] > positions[best])))
          continue;
        best_part = part;
        best = place;
      }
      if (best_part < 0) return;
      ++counts[best_part * rows];
    }
  });
}

void IndexTake(tensor::ExecutionContext& context, const ops::IndexTakeArgs& args) {
  const auto* row_begin = args.tables.slice_row_begin.data<int32_t>();
  ForRows(context, args.tables.rows, args.positions.size(1), [&](int64_t row) {
    auto* positions = args.positions.row<int32_t>(row);
    const int64_t count = args.counts.data<int32_t>()[row];
    std::sort(positions, positions + count);
    const int64_t slice =
        std::upper_bound(row_begin, row_begin + args.tables.slices + 1, row_begin[0] + row) -
        row_begin - 1;
    const auto* page = args.page_indices.row<int32_t>(slice);
    int64_t begin = 0;  // of the page, as `tables` count
    for (int64_t i = 0; i < count; ++i) {
      for (; *page < positions[i] / args.page_size; ++page) begin += args.page_size;
      positions[i] = static_cast<int32_t>(begin + positions[i] % args.page_size);
    }
    std::fill(positions + count, positions + args.positions.size(1), -1);
  });
}

}  // namespace longspan::backend::cpu
