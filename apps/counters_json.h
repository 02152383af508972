// The engine's counters, for `--json`.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/counters.h"

namespace longspan::apps {

// {"plans", "rows", "active_s", "leader_us_per_plan", "plan_latency_ms": {"mean", "p50", "p99"},
// "ranks": [{"kernels_s", "bubble_s", "wait_s", "transfer_s", "host_s", "sent_bytes"}...]}.
nlohmann::ordered_json ToJson(const engine::Counters& counters);

}  // namespace longspan::apps
