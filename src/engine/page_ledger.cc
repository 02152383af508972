#include "engine/page_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace longspan::engine {
namespace {

// Rows before this one need not be computed.
int64_t FirstNeededRow(const Sequence& sequence) {
  const auto& scored = sequence.request.score_positions;
  const int64_t last = sequence.prefill_length() - 1;
  return scored.empty() || sequence.resumed() ? last : std::min(last, scored.front());
}

// A waiting prompt is matched again when this share of its pages has been published meanwhile, so
// that matching costs each of them a few pages' time.
constexpr int64_t kMatchAgainShare = 4;

}  // namespace

PageLedger::PageLedger(int64_t pages, int page_size, bool reuse_prefixes)
    : reuse_prefixes_(reuse_prefixes),
      pool_(pages, page_size),
      tree_(reuse_prefixes ? pages : 0, page_size) {}

bool PageLedger::Reserve(Sequence& sequence, int64_t pages, int64_t left) {
  const int64_t usable = available() - left;
  if (!MayReserve(sequence, pages, usable)) return false;
  if (ReusesPrefixes(sequence)) Match(sequence);
  const int64_t missing = pages - static_cast<int64_t>(sequence.pages.size());
  const int64_t shortage = missing + left - available();
  if (shortage > 0) {
    Release(sequence);
    // Each page that comes free, and each that is published, makes it one less at most.
    sequence.reserve_at_usable = usable + shortage;
    sequence.reserve_failed_at_published = published_;
    return false;
  }
  Take(sequence, missing);
  const int64_t cached = sequence.prefix.pages * pool_.page_size();
  sequence.scheduled = std::max(cached, sequence.request.synthetic_prefix);
  sequence.prefill_begin = sequence.scheduled;
  if (!sequence.resumed()) sequence.cached_tokens = cached;
  sequence.computed = sequence.scheduled;
  sequence.reserve_at_usable = 0;
  return true;
}

bool PageLedger::MayReserve(const Sequence& sequence, int64_t pages, int64_t usable) const {
  if (usable >= sequence.reserve_at_usable) return true;
  const int64_t published = published_ - sequence.reserve_failed_at_published;
  return published >= std::max<int64_t>(1, pages / kMatchAgainShare) &&
         usable + published >= sequence.reserve_at_usable;
}

void PageLedger::Match(Sequence& sequence) {
  const auto needed = static_cast<size_t>(FirstNeededRow(sequence));
  const std::vector<int32_t>& prompt = sequence.request.prompt;
  if (needed <= prompt.size()) {
    tree_.Match(std::span(prompt).first(needed), pool_, sequence.prefix, sequence.pages);
    return;
  }
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), sequence.output.begin(),
                sequence.output.begin() + static_cast<std::ptrdiff_t>(needed - prompt.size()));
  tree_.Match(tokens, pool_, sequence.prefix, sequence.pages);
}

void PageLedger::Take(Sequence& sequence, int64_t pages) {
  tree_.Evict(pages - pool_.free_pages(), pool_);
  const auto free = pool_.Acquire(pages);
  LONGSPAN_CHECK(free.ok(), "{}", free.status().message());
  sequence.pages.insert(sequence.pages.end(), free->begin(), free->end());
}

bool PageLedger::Grow(Sequence& sequence) {
  if (available() == 0) return false;
  Take(sequence, 1);
  return true;
}

void PageLedger::OnComputed(Sequence& sequence, int64_t end) {
  sequence.computed = std::max(sequence.computed, end);
  if (!ReusesPrefixes(sequence)) return;
  const auto known = sequence.prompt_length() + static_cast<int64_t>(sequence.output.size());
  const int64_t full = std::min(sequence.computed, known) / pool_.page_size();
  while (sequence.prefix.pages < full) {
    const int64_t page = sequence.prefix.pages;
    const bool is_new =
        tree_.Publish(PageTokens(sequence, page), sequence.pages[static_cast<size_t>(page)], pool_,
                      sequence.prefix);
    published_ += is_new ? 1 : 0;
  }
}

void PageLedger::Release(Sequence& sequence) {
  tree_.Release(sequence.prefix);
  pool_.Release(sequence.pages);
  sequence.pages.clear();
}

// Pages of a synthetic prefix hold no prompt's KV.
bool PageLedger::ReusesPrefixes(const Sequence& sequence) const {
  return reuse_prefixes_ && sequence.request.synthetic_prefix == 0;
}

std::span<const int32_t> PageLedger::PageTokens(const Sequence& sequence, int64_t page) {
  const auto prompt = std::span<const int32_t>(sequence.request.prompt);
  const auto size = static_cast<size_t>(pool_.page_size());
  const size_t begin = static_cast<size_t>(page) * size;
  if (begin + size <= prompt.size()) return prompt.subspan(begin, size);
  page_tokens_.clear();
  for (size_t position = begin; position < begin + size; ++position)
    page_tokens_.push_back(sequence.token(static_cast<int64_t>(position)));
  return page_tokens_;
}

}  // namespace longspan::engine
