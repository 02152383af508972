#include "engine/chunk_choice.h"

#include <algorithm>
#include <limits>
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
  Room room = RoomFor(prompts, decoding, builder);
  for (Sequence* prompt : prompts) {
    const bool first = prompt == prompts.front();
    const int64_t begin = prompt->scheduled;
    // Would not end in this step, whatever its plan is.
    if (overtakes && !first && prompt->prefill_length() - begin > room.rows) continue;
    const int64_t end =
        first ? FirstEnd(*prompt, builder, room) : JoiningEnd(*prompt, room, builder);
    // A chunk that can be cut anywhere gets nothing where there is no time left.
    if (end <= begin && room.bounded && !IsPlanned()) break;
    if (end <= begin) continue;
    if (overtakes && !first && end < prompt->prefill_length()) continue;
    builder.AddChunk(*prompt, end);
    room.rows -= end - begin;
    if (prompt == &oldest) {
      debt_.Progress(Seconds(begin, end));
    } else if (overtakes) {
      debt_.Overtaken(Seconds(begin, end));
    }
  }
  if (builder.work().tokens > 0) under_way_.push_back(builder.work());
}

ChunkChoice::Room ChunkChoice::RoomFor(std::span<Sequence* const> prompts, bool decoding,
                                       const PlanBuilder& builder) const {
  Room room = {.bounded = decoding && limits_.max_decode_stall_s.has_value(),
               .rows = limits_.chunk_tokens,
               .seconds = std::numeric_limits<double>::infinity()};
  if (room.bounded) room.seconds = *limits_.max_decode_stall_s;
  room.chunk_s = room.seconds - (time_.Seconds(builder.work()) - time_.Seconds({}));
  for (const Sequence* prompt : prompts) room.work_s += RemainingSeconds(*prompt);
  for (const plan::StepWork& work : under_way_)
    room.ahead_s = std::max(room.ahead_s, time_.Seconds(work));
  return room;
}

int64_t ChunkChoice::PolicyEnd(Sequence& sequence, const Room& room) {
  return cutter_.NextEnd(sequence,
                         {.chunk_tokens = MostRows(sequence, limits_.chunk_tokens),
                          .left = MostRows(sequence, room.rows),
                          .seconds = room.chunk_s,
                          .ahead_s = room.ahead_s},
                         room.work_s > 0 ? RemainingSeconds(sequence) / room.work_s : 1, time_);
}

int64_t ChunkChoice::FirstEnd(Sequence& sequence, const PlanBuilder& builder, Room& room) {
  if (room.bounded && !(IsPlanned() && HasTimeForPage(sequence, room.seconds, builder)))
    return BoundedEnd(sequence, room.rows, /*first=*/true, builder);
  const int64_t begin = sequence.scheduled;
  int64_t end = PolicyEnd(sequence, room);
  if (room.bounded) {
    // The plan may have been made beside fewer decodes, or with other costs.
    const int64_t rows = RowsInTime(sequence, end - begin, room.seconds, builder);
    if (begin + rows < end) end = (begin + rows) / limits_.page_size * limits_.page_size;
  }
  room.seconds = std::min(room.seconds, cutter_.StepSeconds(sequence, room.work_s, time_));
  return end;
}

int64_t ChunkChoice::MostRows(const Sequence& sequence, int64_t budget) const {
  return sequence.request.return_logits ? std::min(budget, limits_.max_returned_rows) : budget;
}

bool ChunkChoice::HasTimeForPage(const Sequence& sequence, double seconds,
                                 const PlanBuilder& builder) const {
  const int64_t begin = sequence.scheduled;
  const int64_t rows =
      std::min((begin / limits_.page_size + 1) * limits_.page_size, sequence.prefill_length()) -
      begin;
  return RowsInTime(sequence, rows, seconds, builder) == rows;
}

int64_t ChunkChoice::JoiningEnd(Sequence& sequence, const Room& room, const PlanBuilder& builder) {
  const int64_t begin = sequence.scheduled;
  if (room.rows <= 0) return begin;
  if (room.bounded && !IsPlanned())
    return BoundedEnd(sequence, room.rows, /*first=*/false, builder);
  if (!HasTimeForPage(sequence, room.seconds, builder)) return begin;
  const int64_t end = PolicyEnd(sequence, room);
  const int64_t rows = RowsInTime(sequence, end - begin, room.seconds, builder);
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
