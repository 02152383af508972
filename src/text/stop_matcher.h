// Ends a text at the first of some strings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longspan::text {

// Text goes in piece by piece, as it is generated; what comes out never contains a stop string nor
// the beginning of one that could still become whole. A plain value.
class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that is certain now. Nothing more once matched().
  std::string Append(std::string_view piece);
  // What was held back, at the regular end of the text.
  std::string Finish();
  // A stop string was found: it and what follows are left out.
  bool matched() const { return matched_.has_value(); }
  // Which one.
  const std::optional<std::string>& matched_string() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace longspan::text
