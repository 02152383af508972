#include "plan/chunk_cost.h"

#include <algorithm>
#include <cmath>

namespace longspan::plan {
namespace {

template <typename Combine>
ChunkCost Combined(const ChunkCost& a, const ChunkCost& b, const Combine& combine) {
  return {.per_step = combine(a.per_step, b.per_step),
          .per_prefix_token = combine(a.per_prefix_token, b.per_prefix_token),
          .per_token = combine(a.per_token, b.per_token),
          .per_pair = combine(a.per_pair, b.per_pair),
          .per_index_pair = combine(a.per_index_pair, b.per_index_pair),
          .per_selected_pair = combine(a.per_selected_pair, b.per_selected_pair),
          .per_decode_row = combine(a.per_decode_row, b.per_decode_row),
          .per_decode_position = combine(a.per_decode_position, b.per_decode_position),
          .top_k = a.top_k};
}

}  // namespace

void StepWork::AddChunk(int64_t begin, int64_t end, int64_t top_k) {
  const auto square_sum = [](int64_t first, int64_t last) {
    return static_cast<double>(last - first) * static_cast<double>(last + first);
  };
  prefix_tokens += static_cast<double>(begin);
  tokens += static_cast<double>(end - begin);
  pairs += square_sum(begin, end);
  const int64_t dense_end = top_k == 0 ? end : std::clamp(top_k, begin, end);
  dense_pairs += square_sum(begin, dense_end);
  selected_pairs += 2 * static_cast<double>(top_k) * static_cast<double>(end - dense_end);
}

void StepWork::AddDecodeRow(int64_t position, int64_t top_k) {
  decode_rows += 1;
  decode_positions += static_cast<double>(top_k == 0 ? position : std::min(position, top_k));
}

double ChunkCost::Seconds(const StepWork& work) const {
  return per_step + per_prefix_token * work.prefix_tokens + per_token * work.tokens +
         per_pair * work.dense_pairs + per_selected_pair * work.selected_pairs +
         (top_k == 0 ? 0 : per_index_pair * work.pairs) + per_decode_row * work.decode_rows +
         per_decode_position * work.decode_positions;
}

double ChunkCost::Seconds(int64_t begin, int64_t end) const {
  StepWork work;
  work.AddChunk(begin, end, top_k);
  return Seconds(work);
}

ChunkCost Sum(const ChunkCost& a, const ChunkCost& b) {
  return Combined(a, b, [](double x, double y) { return x + y; });
}

ChunkCost Largest(const ChunkCost& a, const ChunkCost& b) {
  return Combined(a, b, [](double x, double y) { return std::max(x, y); });
}

ChunkCost Scaled(const ChunkCost& cost, double factor) {
  return Combined(cost, cost, [&](double x, double) { return factor * x; });
}

ChunkCost WithoutNonsense(const ChunkCost& cost) {
  return Combined(cost, cost, [](double x, double) { return std::isfinite(x) && x > 0 ? x : 0; });
}

}  // namespace longspan::plan
