#include "text/added_tokens.h"

#include <utility>

#include "text/unicode.h"

namespace longspan::text {

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) Add(static_cast<int32_t>(i));
}

void AddedTokenMatcher::Add(int32_t token_index) {
  const std::string& content = tokens_[static_cast<size_t>(token_index)].content;
  if (content.empty()) return;
  starts_[static_cast<uint8_t>(content[0])] = true;
  int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = Child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(node)].edges.push_back({byte, next});
      nodes_.emplace_back();
    }
    node = next;
  }
  // Two tokens may have one normalized form: the first keeps it.
  int32_t& token = nodes_[static_cast<size_t>(node)].token;
  if (token < 0) token = token_index;
}

int32_t AddedTokenMatcher::Child(int32_t node, uint8_t byte) const {
  for (const Edge& edge : nodes_[static_cast<size_t>(node)].edges)
    if (edge.byte == byte) return edge.node;
  return -1;
}

int32_t AddedTokenMatcher::LongestAt(std::string_view text) const {
  int32_t longest = -1;
  int32_t node = 0;
  for (const char c : text) {
    node = Child(node, static_cast<uint8_t>(c));
    if (node < 0) break;
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token >= 0) longest = token;
  }
  return longest;
}

void AddedTokenMatcher::Split(std::string_view text, std::vector<TextPart>& parts) const {
  size_t done = 0;  // end of the last part
  size_t position = 0;
  while (position < text.size()) {
    const bool may_start = starts_[static_cast<uint8_t>(text[position])];
    const int32_t found = may_start ? LongestAt(text.substr(position)) : -1;
    if (found < 0) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = position;
    size_t end = position + token.content.size();
    position = end;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end))))
      continue;
    // White space that the token before has taken stays there.
    if (token.lstrip && done < begin) begin -= TrailingWhiteSpace(text.substr(done, begin - done));
    if (token.rstrip) end += LeadingWhiteSpace(text.substr(end));
    if (done < begin) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
}

}  // namespace longspan::text
