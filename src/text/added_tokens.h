// Tokens that are found in a text by their name before anything else looks at it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longspan::text {

// One entry of `added_tokens` of tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out by a decode without special tokens
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool single_word = false;  // only where no character of a word touches it
  bool normalized = false;   // looked for in the normalized text, in its normalized form
};

// A part of a text: an added token, or (id < 0) what lies between two of them, never empty.
struct TextPart {
  std::string_view text;
  int32_t id = -1;
};

// Finds added tokens: the leftmost first, of those the longest. Immutable.
class AddedTokenMatcher {
 public:
  // Entries without content are never found.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Appends the parts of `text` (valid UTF-8) in order; together they are the whole text.
  void Split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  struct Edge {
    uint8_t byte = 0;
    int32_t node = 0;
  };
  struct Node {
    int32_t token = -1;  // index of the token that ends here
    std::vector<Edge> edges;
  };
  int32_t Child(int32_t node, uint8_t byte) const;
  void Add(int32_t token_index);
  // Index of the longest token at the start of `text`, or -1.
  int32_t LongestAt(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // a trie over the bytes of the contents; 0 is its root
  bool starts_[256] = {};    // the first bytes of all contents
};

}  // namespace longspan::text
