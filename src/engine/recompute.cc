// What the scheduler does when all KV is lost.
#include <iterator>
#include <utility>

#include "engine/scheduler.h"

namespace longspan::engine {
namespace {

// Rows that the sink has got already are not wanted again.
void ForgetScored(Sequence& sequence) {
  auto& positions = sequence.request.score_positions;
  positions.erase(positions.begin(),
                  std::next(positions.begin(), static_cast<int64_t>(sequence.scored)));
  sequence.scored = 0;
}

}  // namespace

void Scheduler::RecomputeAll() {
  while (!running_.empty()) {
    std::unique_ptr<Sequence> sequence = Stop(*running_.back());
    sequence->pending.clear();
    ForgetScored(*sequence);
    Rewind(*sequence);
    queue_.Return(std::move(sequence));
  }
  queue_.ForgetRefusals();
  pages_ = PageLedger(pages_.pool().pages(), pages_.pool().page_size(), options_.reuse_prefixes);
  released_.clear();
  chunks_.ForgetUnderWay();
  last_plan_ = 0;
  next_group_ = 0;
  decodes_wait_ = false;
}

}  // namespace longspan::engine
