#include "engine/admission_queue.h"

#include <algorithm>
#include <utility>

namespace longspan::engine {
namespace {

constexpr int64_t kKeptShare = 8;
constexpr int64_t kShortsKept = 4;

}  // namespace

void RunningSequences::Add(const Sequence& sequence, int page_size) {
  const auto pages = static_cast<int64_t>(sequence.pages.size());
  ++count;
  if (sequence.is_short) {
    short_pages += pages;
  } else {
    ++long_ones;
  }
  growing += sequence.positions() > pages * page_size ? 1 : 0;
}

AdmissionQueue::AdmissionQueue(int64_t pool_pages, int page_size)
    : kept_(pool_pages / kKeptShare / kShortsKept * kShortsKept),
      short_most_(kept_ / kShortsKept),
      page_size_(page_size) {}

void AdmissionQueue::Push(std::unique_ptr<Sequence> sequence) {
  sequence->is_short = PagesToStart(*sequence) <= short_most_;
  waiting_.push_back(std::move(sequence));
}

void AdmissionQueue::Return(std::unique_ptr<Sequence> sequence) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const auto& other) { return sequence->id < other->id; });
  waiting_.insert(place, std::move(sequence));
}

void AdmissionQueue::ForgetRefusals() {
  for (const auto& sequence : waiting_)
    sequence->reserve_at_usable = sequence->reserve_failed_at_published = 0;
}

std::unique_ptr<Sequence> AdmissionQueue::Start(const RunningSequences& running,
                                                PageLedger& pages) {
  if (waiting_.empty()) return nullptr;
  if (Reserve(*waiting_.front(), running, pages)) return Take(waiting_.begin());
  if (waiting_.front()->is_short || !MayPassHead(running, pages)) return nullptr;
  const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                 [](const auto& sequence) { return sequence->is_short; });
  if (next == waiting_.end() || running.short_pages + PagesToStart(**next) > kept_ ||
      !Reserve(**next, running, pages))
    return nullptr;
  return Take(next);
}

int64_t AdmissionQueue::PagesToStart(const Sequence& sequence) const {
  const int64_t known = kv::PagesFor(sequence.prefill_length(), page_size_);
  return std::min(known + 1, kv::PagesFor(sequence.positions(), page_size_));
}

bool AdmissionQueue::Reserve(Sequence& sequence, const RunningSequences& running,
                             PageLedger& pages) const {
  const bool leaves_kept = !sequence.is_short && running.long_ones > 0;
  const int64_t kept = leaves_kept ? kept_ - running.short_pages : 0;
  return pages.Reserve(sequence, PagesToStart(sequence), std::max(kept, running.growing));
}

// Whether the head would still wait if all short ones had gone: then they are not in its way.
bool AdmissionQueue::MayPassHead(const RunningSequences& running, const PageLedger& pages) const {
  const int64_t without_short = pages.available() + running.short_pages - kept_;
  return running.long_ones > 0 && without_short < PagesToStart(*waiting_.front());
}

std::unique_ptr<Sequence> AdmissionQueue::Take(const Waiting::iterator& place) {
  std::unique_ptr<Sequence> sequence = std::move(*place);
  waiting_.erase(place);
  return sequence;
}

std::unique_ptr<Sequence> AdmissionQueue::Remove(plan::SequenceId id) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const auto& sequence) { return sequence->id == id; });
  return place == waiting_.end() ? nullptr : Take(place);
}

void AdmissionQueue::AppendIds(std::vector<plan::SequenceId>& ids) const {
  for (const auto& sequence : waiting_) ids.push_back(sequence->id);
}

}  // namespace longspan::engine
