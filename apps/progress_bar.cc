#include "apps/progress_bar.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unistd.h>

#include <fmt/format.h>

#include "apps/console.h"

namespace longspan::apps {
namespace {

constexpr std::chrono::milliseconds kDrawEvery(100);
constexpr int kBarWidth = 30;

std::string Bar(double share) {
  const int filled = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
  return std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(kBarWidth - filled), '-');
}

std::string Grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  return whole < 60 ? fmt::format("{} s", whole)
                    : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

std::string TokensLine(int64_t done, int64_t total, double seconds) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string line = fmt::format("Prefill [{}] {:3.0f}%  {} of {} tokens", Bar(share), 100 * share,
                                 Grouped(done), Grouped(total));
  if (rate > 0) {
    line += fmt::format("  {} tokens/s  {} left", Grouped(std::llround(rate)),
                        Duration(static_cast<double>(total - done) / rate));
  }
  return line;
}

ProgressBar::ProgressBar(const base::Clock& clock)
    : clock_(clock), terminal_(isatty(STDERR_FILENO) == 1), begin_(clock.Now()) {}

void ProgressBar::Tokens(int64_t done, int64_t total) {
  if (!terminal_ || !Due()) return;
  Draw(TokensLine(done, total, base::Seconds(clock_.Now() - begin_)));
}

void ProgressBar::Share(std::string_view what, double share) {
  if (!terminal_ || !Due()) return;
  Draw(fmt::format("{} [{}] {:3.0f}%", what, Bar(share), 100 * share));
}

bool ProgressBar::Due() { return !drawn_ || clock_.Now() - last_draw_ >= kDrawEvery; }

void ProgressBar::Draw(const std::string& line) {
  WriteMessage(fmt::format("\r\x1b[K{}", line));
  drawn_ = true;
  last_draw_ = clock_.Now();
}

void ProgressBar::Clear() {
  if (!drawn_) return;
  WriteMessage("\r\x1b[K");
  drawn_ = false;
}

}  // namespace longspan::apps
