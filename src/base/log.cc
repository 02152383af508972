#include "base/log.h"

#include <memory>
#include <mutex>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace longspan::base {

spdlog::logger& Log(std::string_view category) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string name(category);
  auto logger = spdlog::get(name);
  if (logger == nullptr) {
    logger = spdlog::stderr_color_mt(name);
    logger->set_pattern("%H:%M:%S.%e %^%l%$ [%n] %v");
    logger->set_level(spdlog::get_level());
  }
  return *logger;
}

Status SetLogLevel(std::string_view level) {
  const std::string name(level);
  const auto parsed = spdlog::level::from_str(name);
  if (parsed == spdlog::level::off && name != "off")
    return InvalidArgument("log level '{}' is unknown: use trace, debug, info, warn, error or off",
                           name);
  spdlog::set_level(parsed);
  return OkStatus();
}

}  // namespace longspan::base
