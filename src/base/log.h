// Logging to stderr, one logger per folder (its category).
#pragma once

#include <string_view>

#include <spdlog/logger.h>

#include "base/status.h"

namespace longspan::base {

// The logger of a category ("runtime", "engine", ...); made at the first call. Thread-safe.
spdlog::logger& Log(std::string_view category);

// Sets the level of all loggers, present and later: trace, debug, info, warn, error or off.
Status SetLogLevel(std::string_view level);

}  // namespace longspan::base
