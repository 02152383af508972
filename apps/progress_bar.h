// Progress on a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace longspan::apps {

// "Prefill  [#####-----]  52%  8,320 of 16,000 tokens  1,234 tokens/s  6 s left", redrawn in place
// on stderr a few times a second. Silent where stderr is no terminal. Erases itself when done.
class ProgressBar {
 public:
  explicit ProgressBar(const base::Clock& clock = base::SteadyClock());
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Tokens(int64_t done, int64_t total);
  // For work that is not counted in tokens.
  void Share(std::string_view what, double share);
  void Clear();

 private:
  bool Due();
  void Draw(const std::string& line);

  const base::Clock& clock_;
  bool terminal_;
  bool drawn_ = false;
  base::Clock::Duration begin_;
  base::Clock::Duration last_draw_{};
};

// The line itself, without drawing it.
std::string TokensLine(int64_t done, int64_t total, double seconds);

}  // namespace longspan::apps
