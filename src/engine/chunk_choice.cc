#include "engine/chunk_choice.h"

#include <algorithm>
#include <utility>

namespace longspan::engine {
namespace {

// Chunks that are bounded by their time have a multiple of so many rows, and so many at least, so
// that a prompt ends in any case.
constexpr int64_t kBoundedMultiple = 16;

}  // namespace

void ChunkChoice::Add(std::vector<Sequence*> prompts, bool decoding, base::Clock::Duration now,
                      PlanBuilder& builder) {
  if (prompts.empty()) return;
  Sequence& oldest = *prompts.front();
  if (oldest.id != std::exchange(oldest_, oldest.id)) debt_.Clear();
  Order(prompts, now);
  const bool overtakes = prompts.front() != &oldest;
  const bool bounded = decoding && limits_.max_decode_stall_s.has_value();
  int64_t budget = limits_.chunk_tokens;  // above 0 for the first one
  double work_s = 0;
  for (const Sequence* prompt : prompts) work_s += RemainingSeconds(*prompt);
  double step_s = 0;
  for (Sequence* prompt : prompts) {
    const bool first = prompt == prompts.front();
    const int64_t begin = prompt->scheduled;
    int64_t end = 0;
    if (bounded) {
      end = BoundedEnd(*prompt, budget, first, builder);
    } else if (budget > 0) {
      end = cutter_.NextEnd(*prompt,
                            {MostRows(*prompt, limits_.chunk_tokens), MostRows(*prompt, budget)},
                            work_s > 0 ? RemainingSeconds(*prompt) / work_s : 1, time_);
      if (first) step_s = cutter_.StepSeconds(*prompt, work_s, time_);
      if (!first) end = JoiningEnd(*prompt, end, step_s, builder);
    }
    if (end <= begin && (bounded || budget <= 0)) break;
    if (end <= begin) continue;  // one that is shorter may still fit
    if (overtakes && !first && end < prompt->prefill_length()) continue;
    builder.AddChunk(*prompt, end);
    budget -= end - begin;
    if (prompt == &oldest) {
      debt_.Progress(Seconds(begin, end));
    } else if (overtakes) {
      debt_.Overtaken(Seconds(begin, end));
    }
  }
}

int64_t ChunkChoice::MostRows(const Sequence& sequence, int64_t budget) const {
  return sequence.request.return_logits ? std::min(budget, limits_.max_returned_rows) : budget;
}

int64_t ChunkChoice::JoiningEnd(const Sequence& sequence, int64_t end, double step_seconds,
                                const PlanBuilder& builder) const {
  const int64_t begin = sequence.scheduled;
  const int64_t rows = time_.LongestChunk(builder.work(), begin, end - begin, step_seconds);
  if (begin + rows == end) return end;
  // Less than half a chunk is not worth another cut.
  if (2 * rows < end - begin) return begin;
  return std::max(begin, (begin + rows) / limits_.page_size * limits_.page_size);
}

void ChunkChoice::Order(std::vector<Sequence*>& prompts, base::Clock::Duration now) const {
  if (prompts.size() == 1) return;
  double chunk_s = 0;
  for (const Sequence* prompt : prompts)
    chunk_s = std::max(chunk_s, Seconds(prompt->scheduled, cutter_.ExpectedEnd(*prompt)));
  std::vector<std::pair<double, Sequence*>> ranked;
  for (Sequence* prompt : prompts)
    ranked.emplace_back(plan::Urgency(base::Seconds(now - prompt->submitted), chunk_s,
                                      Seconds(prompt->prefill_begin, prompt->prefill_length())),
                        prompt);
  // The oldest one keeps its place in front where it has been overtaken enough.
  const auto& oldest = *prompts.front();
  const bool may_overtake =
      debt_.MayOvertake(Seconds(oldest.scheduled, cutter_.ExpectedEnd(oldest)));
  std::stable_sort(ranked.begin() + (may_overtake ? 0 : 1), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::transform(ranked.begin(), ranked.end(), prompts.begin(),
                 [](const auto& entry) { return entry.second; });
}

int64_t ChunkChoice::BoundedEnd(const Sequence& sequence, int64_t budget, bool first,
                                const PlanBuilder& builder) const {
  int64_t rows = time_.LongestChunk(builder.work(), sequence.scheduled, limits_.chunk_tokens,
                                    *limits_.max_decode_stall_s);
  if (rows > kBoundedMultiple) rows -= rows % kBoundedMultiple;
  if (first) rows = std::max(rows, kBoundedMultiple);
  rows = std::min(rows, MostRows(sequence, budget));
  return std::min(sequence.scheduled + rows, sequence.prefill_length());
}

}  // namespace longspan::engine
