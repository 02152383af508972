// Memory of this program and its stages: this process and its direct children.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/output.h"

namespace longspan::apps {

// What is resident now, of weights in mapped files as well.
double RssMib();

// The most that was resident since the last reset.
double PeakRssMib();
void ResetPeakRss();

// What was resident when so many tokens of a prompt were computed.
struct MemorySample {
  int64_t tokens = 0;
  double seconds = 0;  // since the first step began
  double rss_mib = 0;
  double kv_mib = 0;  // of those tokens' pages

  // What must not grow with the prompt.
  double rest_mib() const { return rss_mib - kv_mib; }
};

// Takes samples at equal parts of one prompt that begins at position 0, from its steps:
//   engine.set_step_observer([&](const auto& step) { course.Add(step); });
class MemoryCourse {
 public:
  MemoryCourse(int64_t prompt_tokens, int samples, int64_t kv_bytes_per_token)
      : prompt_tokens_(prompt_tokens), samples_wanted_(samples), kv_bytes_(kv_bytes_per_token) {}

  void Add(const engine::StepRecord& step);

  const std::vector<MemorySample>& samples() const { return samples_; }

 private:
  int64_t prompt_tokens_;
  int64_t samples_wanted_;
  int64_t kv_bytes_;
  int64_t begin_ = -1;  // of the first step, on the engine's clock
  std::vector<MemorySample> samples_;
};

}  // namespace longspan::apps
