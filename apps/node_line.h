// A network that is farther away than it is, to try things with.
#pragma once

#include <memory>

#include "comm/channel.h"
#include "comm/link.h"

namespace longspan::apps {

// An end of a line to another host. Where the environment has LONGSPAN_LINE_DELAY_MS, what is sent
// from here sets out so many milliseconds later (comm/fault/fault.h); else the end itself.
std::unique_ptr<comm::Channel> DelayedLine(std::unique_ptr<comm::Channel> channel);
std::unique_ptr<comm::Link> DelayedLine(std::unique_ptr<comm::Link> link);

}  // namespace longspan::apps
