#include "engine/page_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace longspan::engine {
namespace {

// Rows of the prompt before this one need not be computed.
int64_t FirstNeededRow(const Sequence& sequence) {
  const auto& scored = sequence.request.score_positions;
  const int64_t last = sequence.prompt_length() - 1;
  return scored.empty() ? last : std::min(last, scored.front());
}

}  // namespace

PageLedger::PageLedger(int64_t pages, int page_size, bool reuse_prefixes)
    : reuse_prefixes_(reuse_prefixes),
      pool_(pages, page_size),
      tree_(reuse_prefixes ? pages : 0, page_size) {}

bool PageLedger::Reserve(Sequence& sequence, int64_t pages) {
  if (available() + published_ < sequence.reserve_again_at) return false;
  if (ReusesPrefixes(sequence)) {
    const auto prompt = std::span<const int32_t>(sequence.request.prompt);
    tree_.Match(prompt.first(static_cast<size_t>(FirstNeededRow(sequence))), pool_, sequence.prefix,
                sequence.pages);
  }
  const int64_t missing = pages - static_cast<int64_t>(sequence.pages.size());
  const int64_t shortage = missing - available();
  if (shortage > 0) {
    Release(sequence);
    // Each page that comes free, and each that is published, makes it one less at most.
    sequence.reserve_again_at = available() + published_ + shortage;
    return false;
  }
  tree_.Evict(missing - pool_.free_pages(), pool_);
  const auto free = pool_.Acquire(missing);
  LONGSPAN_CHECK(free.ok(), "{}", free.status().message());
  sequence.pages.insert(sequence.pages.end(), free->begin(), free->end());
  sequence.cached_tokens = sequence.prefix.pages * pool_.page_size();
  sequence.scheduled = std::max(sequence.cached_tokens, sequence.request.synthetic_prefix);
  sequence.computed = sequence.scheduled;
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
    page_tokens_.push_back(position < prompt.size() ? prompt[position]
                                                    : sequence.output[position - prompt.size()]);
  return page_tokens_;
}

}  // namespace longspan::engine
