#include "text/pretokenizer.h"

#include <algorithm>

namespace longspan::text {
namespace {

using base::OkStatus;
using base::Result;
using base::Status;

using Pieces = std::vector<std::string_view>;

// A match, or what lies between two of them.
struct Part {
  size_t begin = 0;
  size_t end = 0;
  bool is_delimiter = false;
};

std::vector<Part> PartsOf(std::string_view piece, const std::vector<RegexMatch>& matches,
                          bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  for (const RegexMatch& match : matches) {
    if (match.begin != done) parts.push_back({done, match.begin, invert});
    parts.push_back({match.begin, match.end, !invert});
    done = match.end;
  }
  if (done != piece.size()) parts.push_back({done, piece.size(), invert});
  return parts;
}

// Joins each delimiter that follows something else to it. Run from the back, that joins delimiters
// to what comes after them.
template <typename Iterator>
std::vector<Part> JoinDelimiters(Iterator begin, const Iterator& end) {
  std::vector<Part> joined;
  bool after_delimiter = false;
  for (; begin != end; ++begin) {
    if (begin->is_delimiter && !after_delimiter && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, begin->begin);
      joined.back().end = std::max(joined.back().end, begin->end);
    } else {
      joined.push_back(*begin);
    }
    after_delimiter = begin->is_delimiter;
  }
  return joined;
}

std::vector<Part> JoinEqualNeighbours(const std::vector<Part>& parts) {
  std::vector<Part> joined;
  for (const Part& part : parts) {
    if (!joined.empty() && joined.back().is_delimiter == part.is_delimiter) {
      joined.back().end = part.end;
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

std::vector<Part> Rearrange(std::vector<Part> parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.is_delimiter; });
      return parts;
    case SplitBehavior::kIsolated:
      return parts;
    case SplitBehavior::kMergedWithPrevious:
      return JoinDelimiters(parts.begin(), parts.end());
    case SplitBehavior::kMergedWithNext:
      parts = JoinDelimiters(parts.rbegin(), parts.rend());
      std::ranges::reverse(parts);
      return parts;
    case SplitBehavior::kContiguous:
      return JoinEqualNeighbours(parts);
  }
  return parts;
}

void AppendPiece(std::string_view text, size_t begin, size_t end, Pieces& pieces) {
  if (begin < end) pieces.push_back(text.substr(begin, end - begin));
}

// The usual case, without the detour over parts: `invert` makes no difference to it.
void AppendIsolated(std::string_view piece, const std::vector<RegexMatch>& matches,
                    Pieces& pieces) {
  size_t done = 0;
  for (const RegexMatch& match : matches) {
    AppendPiece(piece, done, match.begin, pieces);
    AppendPiece(piece, match.begin, match.end, pieces);
    done = match.end;
  }
  AppendPiece(piece, done, piece.size(), pieces);
}

Status Apply(const SplitStep& step, std::deque<std::string>& /*storage*/, Pieces& pieces) {
  Pieces cut;
  std::vector<RegexMatch> matches;
  for (const std::string_view piece : pieces) {
    matches.clear();
    LONGSPAN_RETURN_IF_ERROR(step.pattern.FindAll(piece, matches));
    if (step.behavior == SplitBehavior::kIsolated) {
      AppendIsolated(piece, matches, cut);
      continue;
    }
    for (const Part& part : Rearrange(PartsOf(piece, matches, step.invert), step.behavior))
      AppendPiece(piece, part.begin, part.end, cut);
  }
  pieces = std::move(cut);
  return OkStatus();
}

Status Apply(const PrefixSpaceStep& /*step*/, std::deque<std::string>& storage, Pieces& pieces) {
  for (std::string_view& piece : pieces)
    if (!piece.starts_with(' ')) piece = storage.emplace_back(" ").append(piece);
  return OkStatus();
}

}  // namespace

Result<std::vector<std::string_view>> PreTokenizer::Split(std::string_view text,
                                                          std::deque<std::string>& storage) const {
  Pieces pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const PreTokenizerStep& step : steps_) {
    LONGSPAN_RETURN_IF_ERROR(
        std::visit([&](const auto& kind) { return Apply(kind, storage, pieces); }, step));
  }
  return pieces;
}

}  // namespace longspan::text
