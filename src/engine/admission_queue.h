// Sequences that wait, and which of them starts next.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/page_ledger.h"
#include "engine/sequence.h"

namespace longspan::engine {

// What runs, as far as admission looks at it.
struct RunningSequences {
  int64_t count = 0;
  int64_t long_ones = 0;
  int64_t short_pages = 0;  // that the short ones have
  int64_t growing = 0;      // sequences that will want one more page at least

  void Add(const Sequence& sequence, int page_size);
};

// Sequences start in the order in which they came, each when pages for all its known tokens, and
// one for what it generates, can be reserved; what is generated takes its pages as it grows. One
// page for every running sequence that grows is left, so that a start does not end in a shortage.
//
// An eighth of the pool is kept for short sequences, those that need at most a quarter of that:
// - long ones leave it free, unless none of them runs;
// - while a long one at the head of the queue waits for pages, short ones may pass it as long as
//   they have no more than that eighth together, and as long as the head waits for others than
//   short ones.
// Where an eighth is less than four pages, nothing is kept.
class AdmissionQueue {
 public:
  AdmissionQueue(int64_t pool_pages, int page_size);

  void Push(std::unique_ptr<Sequence> sequence);
  // One that ran before, by its age among those that wait.
  void Return(std::unique_ptr<Sequence> sequence);

  // The pool is another: whoever was refused pages may ask again.
  void ForgetRefusals();

  // The next one that may start, with its pages; null where none may.
  std::unique_ptr<Sequence> Start(const RunningSequences& running, PageLedger& pages);

  // Null where it does not wait here.
  std::unique_ptr<Sequence> Remove(plan::SequenceId id);

  bool empty() const { return waiting_.empty(); }
  int64_t size() const { return static_cast<int64_t>(waiting_.size()); }
  void AppendIds(std::vector<plan::SequenceId>& ids) const;

 private:
  using Waiting = std::deque<std::unique_ptr<Sequence>>;

  int64_t PagesToStart(const Sequence& sequence) const;
  bool Reserve(Sequence& sequence, const RunningSequences& running, PageLedger& pages) const;
  bool MayPassHead(const RunningSequences& running, const PageLedger& pages) const;
  std::unique_ptr<Sequence> Take(const Waiting::iterator& place);

  int64_t kept_;        // pages for short sequences
  int64_t short_most_;  // pages of one
  int page_size_;
  Waiting waiting_;
};

}  // namespace longspan::engine
