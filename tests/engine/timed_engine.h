// An engine whose ranks compute nothing and take the time that a formula says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "tests/support/timed_backend.h"

namespace longspan::testing {

struct TimedLayout {
  int stages = 1;
  int virtual_stages = 1;
  int layers = 8;           // of the model, all alike; divided over the virtual stages
  support::TimedCost cost;  // of one layer
  engine::SchedulerOptions scheduler;
  int64_t max_context = 1 << 20;
  int64_t max_total_tokens = 1 << 21;
  int32_t token = 7;  // that every row samples
  // Where the text of every plan goes that the ranks get; outlives the engine.
  std::string* plans = nullptr;
};

// Ids of prompts are below this.
constexpr int kTimedVocab = 64;

// Real ranks as threads, real transports and the real engine, over the timed backend. A failure to
// start ends the test program.
std::unique_ptr<engine::Engine> StartTimed(const TimedLayout& layout);

}  // namespace longspan::testing
