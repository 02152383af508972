// What the server counts, in Prometheus' text form (exposition format 0.0.4).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine_loop.h"
#include "server/generation.h"

namespace longspan::server {

// How often a value fell under each of its bounds. Not thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void Add(double value, int64_t times = 1);
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<int64_t>& counts() const { return counts_; }  // by bucket, not cumulated
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// Builds the text.
class MetricsText {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help);
  // `labels` as in "rank=\"0\"", escaped; empty for none.
  void Sample(std::string_view name, double value, std::string_view labels = {});
  void Add(std::string_view name, std::string_view help, const Histogram& histogram);
  void Add(std::string_view name, std::string_view type, std::string_view help, double value) {
    Family(name, type, help);
    Sample(name, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(int stage_ranks = 1);  // of each stage

  void OnRequest(const std::string& path, int status);
  void OnFirstToken(double seconds);
  // So many tokens after so long a pause.
  void OnTokens(int64_t tokens, double pause_seconds);
  // So many sequences are given to the engine. Each of them ends by one of OnFinish, OnGone and
  // OnFailed.
  void OnSubmitted(int64_t sequences);
  // A sequence has come to its end, `seconds` after its request.
  void OnFinish(double seconds, const Finish& finish);
  // Sequences whose client went away.
  void OnGone(int64_t sequences);
  // Sequences that the engine refused or lost.
  void OnFailed(int64_t sequences);

  // All of it, and of the engine.
  std::string Text(const EngineSnapshot& engine, int64_t connections) const;

 private:
  const int stage_ranks_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  Histogram time_to_first_token_;
  Histogram inter_token_;
  Histogram end_to_end_;
  Histogram queue_time_;
  Histogram prompt_lengths_;
  Histogram prediction_error_;
  double predicted_s_ = 0;
  double measured_s_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t submitted_ = 0;
  int64_t finished_ = 0;
  int64_t aborted_ = 0;
  int64_t failed_ = 0;
};

}  // namespace longspan::server
