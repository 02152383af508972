// Which of several prompts goes on first.
#pragma once

#include <algorithm>

namespace longspan::plan {

// By how much a prompt is slowed down if it lets one more chunk pass: the time since it came and of
// that chunk, in units of the time that its own work is predicted to take. The prompt where this is
// largest has the least slack relative to its service time, and goes first.
//
// So a short prompt overtakes a long one at the next border of chunks unless the long one has been
// slowed down more; of equal prompts the one that came first stays ahead to its end, since the
// service is that of the whole work and not of what remains.
inline double Urgency(double waited_s, double chunk_s, double service_s) {
  constexpr double kShortest = 1e-9;
  return (waited_s + chunk_s) / std::max(service_s, kShortest);
}

// Bounds what being overtaken costs: work that overtook the oldest prompt may exceed that prompt's
// own progress by one of its chunks. So the oldest prompt never takes more than twice its time and
// a chunk, whatever comes, and each prompt becomes the oldest.
class OvertakingDebt {
 public:
  bool MayOvertake(double chunk_s) const { return debt_s_ < chunk_s; }
  void Overtaken(double work_s) { debt_s_ += work_s; }
  void Progress(double work_s) { debt_s_ = std::max(0.0, debt_s_ - work_s); }
  void Clear() { debt_s_ = 0; }  // another prompt is the oldest

 private:
  double debt_s_ = 0;
};

}  // namespace longspan::plan
