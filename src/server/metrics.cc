#include "server/metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace longspan::server {
namespace {

std::vector<double> Latencies() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
          2.5,   5,      10,    25,   50,    100,  250, 500,  1000};
}

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

void AddEngine(const EngineSnapshot& engine, MetricsText& text) {
  text.Add("longspan_running_requests", "gauge", "Sequences that are computed.",
           static_cast<double>(engine.running));
  text.Add("longspan_queued_requests", "gauge", "Sequences that wait.",
           static_cast<double>(engine.queued));
  const auto page = static_cast<double>(engine.page_size);
  const double capacity = static_cast<double>(engine.pages) * page;
  const double used = static_cast<double>(engine.pages_in_use) * page;
  text.Add("longspan_kv_capacity_tokens", "gauge", "Tokens that the KV cache holds.", capacity);
  text.Add("longspan_kv_used_tokens", "gauge", "Tokens of pages that sequences use.", used);
  text.Add("longspan_kv_cached_tokens", "gauge", "Tokens of pages in the prefix tree.",
           static_cast<double>(engine.pages_cached) * page);
  text.Add("longspan_kv_usage_ratio", "gauge", "Share of the KV cache that sequences use.",
           capacity > 0 ? used / capacity : 0);
  text.Add("longspan_preemptions_total", "counter",
           "Sequences that gave their pages back and were computed again.",
           static_cast<double>(engine.preemptions));
}

void AddPipeline(const engine::Counters& counters, int stage_ranks, MetricsText& text) {
  text.Add("longspan_plans_total", "counter", "Steps that all stages have computed.",
           static_cast<double>(counters.plans));
  text.Add("longspan_rows_total", "counter", "Token rows of those steps.",
           static_cast<double>(counters.rows));
  text.Add("longspan_active_seconds_total", "counter", "Time with a step in flight.",
           Seconds(counters.active));
  int64_t bubble = 0;
  for (const engine::RankCounters& rank : counters.ranks) bubble += rank.bubble;
  const double whole =
      Seconds(counters.active) * static_cast<double>(std::max<size_t>(1, counters.ranks.size()));
  text.Add("longspan_bubble_ratio", "gauge",
           "Share of the stages' active time since the start in which they had nothing to do.",
           whole > 0 ? std::clamp(Seconds(bubble) / whole, 0.0, 1.0) : 0);
  const auto per_rank = [&, stage_ranks](std::string_view name, std::string_view help, auto value) {
    text.Family(name, "counter", help);
    for (size_t rank = 0; rank < counters.ranks.size(); ++rank) {
      std::string labels = fmt::format("stage=\"{}\"", rank / static_cast<size_t>(stage_ranks));
      if (stage_ranks > 1) fmt::format_to(std::back_inserter(labels), ",rank=\"{}\"", rank);
      text.Sample(name, value(counters.ranks[rank]), labels);
    }
  };
  per_rank("longspan_stage_kernel_seconds_total", "Time in kernels.",
           [](const engine::RankCounters& rank) { return Seconds(rank.kernels); });
  per_rank("longspan_stage_bubble_seconds_total", "Time without work while others had some.",
           [](const engine::RankCounters& rank) { return Seconds(rank.bubble); });
  per_rank("longspan_stage_transfer_seconds_total", "Time in the transport.",
           [](const engine::RankCounters& rank) { return Seconds(rank.transfer); });
  per_rank("longspan_boundary_sent_bytes_total", "Bytes to the next stage.",
           [](const engine::RankCounters& rank) { return static_cast<double>(rank.sent_bytes); });
  const engine::DurationHistogram& latency = counters.plan_latency;
  text.Family("longspan_plan_latency_seconds", "histogram",
              "From a step's submission to its commit.");
  int64_t below = 0;
  for (size_t i = 0; i < engine::DurationHistogram::kBounds; ++i) {
    below += latency.buckets()[i];
    text.Sample("longspan_plan_latency_seconds_bucket", static_cast<double>(below),
                fmt::format("le=\"{}\"", Seconds(engine::DurationHistogram::bounds()[i])));
  }
  text.Sample("longspan_plan_latency_seconds_bucket", static_cast<double>(latency.count()),
              "le=\"+Inf\"");
  text.Sample("longspan_plan_latency_seconds_sum", Seconds(latency.sum()));
  text.Sample("longspan_plan_latency_seconds_count", static_cast<double>(latency.count()));
}

}  // namespace

void Histogram::Add(double value, int64_t times) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bound - bounds_.begin())] += times;
  sum_ += value * static_cast<double>(times);
}

void MetricsText::Family(std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::Sample(std::string_view name, double value, std::string_view labels) {
  text_ += name;
  if (!labels.empty()) fmt::format_to(std::back_inserter(text_), "{{{}}}", labels);
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void MetricsText::Add(std::string_view name, std::string_view help, const Histogram& histogram) {
  Family(name, "histogram", help);
  const std::string bucket = fmt::format("{}_bucket", name);
  int64_t below = 0;
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    below += histogram.counts()[i];
    Sample(bucket, static_cast<double>(below), fmt::format("le=\"{}\"", histogram.bounds()[i]));
  }
  below += histogram.counts().back();
  Sample(bucket, static_cast<double>(below), "le=\"+Inf\"");
  Sample(fmt::format("{}_sum", name), histogram.sum());
  Sample(fmt::format("{}_count", name), static_cast<double>(below));
}

Metrics::Metrics(int stage_ranks)
    : stage_ranks_(stage_ranks),
      time_to_first_token_(Latencies()),
      inter_token_(Latencies()),
      end_to_end_(Latencies()),
      queue_time_(Latencies()),
      prompt_lengths_({64, 256, 1024, 4096, 16384, 65536, 262144, 1048576}),
      prediction_error_({0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}) {}

void Metrics::OnRequest(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
}

void Metrics::OnFirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  time_to_first_token_.Add(seconds);
}

void Metrics::OnTokens(int64_t tokens, double pause_seconds) {
  if (tokens <= 0) return;
  const std::lock_guard lock(mutex_);
  inter_token_.Add(pause_seconds / static_cast<double>(tokens), tokens);
}

void Metrics::OnSubmitted(int64_t sequences) {
  const std::lock_guard lock(mutex_);
  submitted_ += sequences;
}

void Metrics::OnFinish(double seconds, const Finish& finish) {
  const std::lock_guard lock(mutex_);
  end_to_end_.Add(seconds);
  queue_time_.Add(finish.info.queue_s);
  prompt_lengths_.Add(static_cast<double>(finish.prompt_tokens));
  prompt_tokens_ += finish.prompt_tokens;
  cached_tokens_ += finish.info.cached_tokens;
  completion_tokens_ += finish.completion_tokens;
  ++(finish.reason == engine::FinishReason::kAbort ? aborted_ : finished_);
  for (const ChunkTime& chunk : finish.chunks) {
    predicted_s_ += chunk.predicted_s;
    measured_s_ += chunk.measured_s;
    if (chunk.measured_s > 0)
      prediction_error_.Add(std::abs(chunk.predicted_s - chunk.measured_s) / chunk.measured_s);
  }
}

void Metrics::OnGone(int64_t sequences) {
  const std::lock_guard lock(mutex_);
  aborted_ += sequences;
}

void Metrics::OnFailed(int64_t sequences) {
  const std::lock_guard lock(mutex_);
  failed_ += sequences;
}

std::string Metrics::Text(const EngineSnapshot& engine, int64_t connections) const {
  MetricsText text;
  {
    const std::lock_guard lock(mutex_);
    text.Family("longspan_http_requests_total", "counter", "Answers by path and status.");
    for (const auto& [key, count] : requests_)
      text.Sample("longspan_http_requests_total", static_cast<double>(count),
                  fmt::format("path=\"{}\",status=\"{}\"", key.first, key.second));
    text.Add("longspan_time_to_first_token_seconds",
             "From the whole request's arrival to its first token.", time_to_first_token_);
    text.Add("longspan_inter_token_latency_seconds", "Between tokens of a sequence.", inter_token_);
    text.Add("longspan_e2e_request_latency_seconds",
             "From the whole request's arrival to a sequence's end.", end_to_end_);
    text.Add("longspan_queue_time_seconds", "From a sequence's submission to its start.",
             queue_time_);
    text.Add("longspan_prompt_length_tokens", "Tokens of prompts.", prompt_lengths_);
    text.Add("longspan_prompt_tokens_total", "counter", "Prefill tokens, cached ones among them.",
             static_cast<double>(prompt_tokens_));
    text.Add("longspan_cached_tokens_total", "counter", "Prefill tokens that were cached.",
             static_cast<double>(cached_tokens_));
    text.Add("longspan_cache_hit_ratio", "gauge", "Share of the prefill tokens that were cached.",
             prompt_tokens_ > 0
                 ? static_cast<double>(cached_tokens_) / static_cast<double>(prompt_tokens_)
                 : 0);
    text.Add("longspan_generation_tokens_total", "counter", "Decoded tokens.",
             static_cast<double>(completion_tokens_));
    text.Add("longspan_sequences_total", "counter", "Sequences that were given to the engine.",
             static_cast<double>(submitted_));
    text.Add("longspan_sequences_finished_total", "counter", "Sequences that came to their end.",
             static_cast<double>(finished_));
    text.Add("longspan_sequences_aborted_total", "counter", "Sequences that were taken back.",
             static_cast<double>(aborted_));
    text.Add("longspan_sequences_failed_total", "counter",
             "Sequences that the engine refused or lost.", static_cast<double>(failed_));
    text.Add("longspan_prefill_chunk_predicted_seconds_total", "counter",
             "Time of prefill chunks as predicted from those before.", predicted_s_);
    text.Add("longspan_prefill_chunk_measured_seconds_total", "counter",
             "Time that the same chunks took.", measured_s_);
    text.Add("longspan_prefill_chunk_error_ratio",
             "Error of a chunk's prediction as a share of its time.", prediction_error_);
  }
  text.Add("longspan_connections", "gauge", "Open connections.", static_cast<double>(connections));
  AddEngine(engine, text);
  AddPipeline(engine.counters, stage_ranks_, text);
  return text.text();
}

}  // namespace longspan::server
