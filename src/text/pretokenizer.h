// Cutting a text into the pieces within which byte pairs are merged.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace longspan::text {

// What becomes of the matches ("delimiters") of a split.
enum class SplitBehavior {
  kRemoved,             // they are dropped
  kIsolated,            // each is a piece
  kMergedWithPrevious,  // each ends the piece before it
  kMergedWithNext,      // each begins the piece after it
  kContiguous,          // a run of them is a piece
};

// Cuts at the matches of an expression, or (`invert`) at what lies between them.
struct SplitStep {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};

// Puts a space before each piece that has none.
struct PrefixSpaceStep {};

using PreTokenizerStep = std::variant<SplitStep, PrefixSpaceStep>;

// Steps that each cut the pieces of the one before, looking at nothing outside a piece. Immutable,
// movable, thread-safe.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // The pieces of `text` (valid UTF-8) in order, none empty. They are views of `text` or of strings
  // that are appended to `storage`. ResourceExhausted as Regex::FindAll.
  base::Result<std::vector<std::string_view>> Split(std::string_view text,
                                                    std::deque<std::string>& storage) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace longspan::text
