#include "apps/counters_json.h"

#include <algorithm>

namespace longspan::apps {

nlohmann::ordered_json ToJson(const engine::Counters& counters) {
  const auto seconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const engine::RankCounters& rank : counters.ranks)
    ranks.push_back({{"kernels_s", seconds(rank.kernels)},
                     {"bubble_s", seconds(rank.bubble)},
                     {"wait_s", seconds(rank.wait)},
                     {"transfer_s", seconds(rank.transfer)},
                     {"host_s", seconds(rank.host)},
                     {"sent_bytes", rank.sent_bytes}});
  const auto plans = static_cast<double>(std::max<int64_t>(1, counters.plans));
  const engine::DurationHistogram& latency = counters.plan_latency;
  return {{"plans", counters.plans},
          {"rows", counters.rows},
          {"active_s", seconds(counters.active)},
          {"leader_us_per_plan", static_cast<double>(counters.leader_work) * 1e-3 / plans},
          {"plan_latency_ms",
           {{"mean", static_cast<double>(latency.sum()) * 1e-6 / plans},
            {"p50", latency.Quantile(0.5) * 1e-6},
            {"p99", latency.Quantile(0.99) * 1e-6}}},
          {"ranks", std::move(ranks)}};
}

}  // namespace longspan::apps
