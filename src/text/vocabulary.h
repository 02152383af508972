// The tokens of a tokenizer: how each is spelled and which bytes it stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/string_index.h"

namespace longspan::text {

// Immutable. Owns its strings; movable, and views of them stay valid when it is moved.
class Vocabulary {
 public:
  // `tokens[id]` is the spelling (valid UTF-8) of token id. DataLoss when two are equal.
  static base::Result<Vocabulary> Create(std::span<const std::string_view> tokens);

  int32_t size() const { return static_cast<int32_t>(spellings_.size()); }
  std::optional<int32_t> Find(std::string_view spelling) const { return index_.Find(spelling); }
  // The spelling that was given.
  std::string_view spelling(int32_t id) const { return spellings_[static_cast<size_t>(id)]; }
  // The bytes: a spelling in the byte-level alphabet is undone, any other is itself.
  std::string_view bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }
  // Whether the spelling is in the byte-level alphabet.
  bool is_byte_level(int32_t id) const { return byte_level_[static_cast<size_t>(id)]; }

 private:
  explicit Vocabulary(std::span<const std::string_view> tokens);

  std::vector<char> storage_;  // a vector, as a moved std::string may move its characters
  std::vector<std::string_view> spellings_;
  std::vector<std::string_view> bytes_;
  std::vector<bool> byte_level_;
  StringIndex index_;  // by spelling
};

}  // namespace longspan::text
