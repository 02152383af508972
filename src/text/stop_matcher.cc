#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace longspan::text {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::Append(std::string_view piece) {
  if (matched_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  const std::string* found = nullptr;
  for (const std::string& stop : stops_) {
    const size_t place = held_.find(stop);
    if (place >= first) continue;
    first = place;
    found = &stop;
  }
  if (found != nullptr) {
    matched_ = *found;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // The longest end of the text that is the beginning of a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, length))) {
        keep = length;
        break;
      }
    }
  }
  std::string safe = held_.substr(0, held_.size() - keep);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopMatcher::Finish() { return std::exchange(held_, {}); }

}  // namespace longspan::text
