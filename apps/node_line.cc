#include "apps/node_line.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "comm/fault/fault.h"

namespace longspan::apps {
namespace {

comm::FaultPlan Delay() {
  const char* text = std::getenv("LONGSPAN_LINE_DELAY_MS");
  const double milliseconds = text == nullptr ? 0 : std::strtod(text, nullptr);
  comm::FaultPlan plan;
  // Also not for what is no number.
  if (milliseconds > 0 && milliseconds <= 10000)
    plan.delay = std::chrono::nanoseconds(static_cast<int64_t>(1e6 * milliseconds));
  return plan;
}

}  // namespace

std::unique_ptr<comm::Channel> DelayedLine(std::unique_ptr<comm::Channel> channel) {
  const comm::FaultPlan plan = Delay();
  if (plan.delay.count() == 0) return channel;
  return comm::CreateFaultInjectingChannel(std::move(channel), plan);
}

std::unique_ptr<comm::Link> DelayedLine(std::unique_ptr<comm::Link> link) {
  const comm::FaultPlan plan = Delay();
  if (plan.delay.count() == 0) return link;
  return comm::CreateFaultInjectingLink(std::move(link), plan);
}

}  // namespace longspan::apps
