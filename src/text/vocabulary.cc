#include "text/vocabulary.h"

#include "text/byte_level.h"

namespace longspan::text {

Vocabulary::Vocabulary(std::span<const std::string_view> tokens) : index_(tokens.size()) {
  size_t total = 0;
  for (const std::string_view token : tokens) total += token.size();
  // The bytes are never longer than the spelling. The storage must not move once views point into
  // it.
  storage_.reserve(2 * total);
  const auto store = [this](std::string_view text) {
    const char* begin = storage_.data() + storage_.size();
    storage_.insert(storage_.end(), text.begin(), text.end());
    return std::string_view(begin, text.size());
  };
  spellings_.reserve(tokens.size());
  bytes_.reserve(tokens.size());
  byte_level_.reserve(tokens.size());
  std::string undone;
  for (const std::string_view token : tokens) {
    undone.clear();
    const bool byte_level = AppendSpelledBytes(token, undone);
    spellings_.push_back(store(token));
    bytes_.push_back(byte_level ? store(undone) : spellings_.back());
    byte_level_.push_back(byte_level);
  }
}

base::Result<Vocabulary> Vocabulary::Create(std::span<const std::string_view> tokens) {
  Vocabulary vocabulary(tokens);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view spelling = vocabulary.spelling(id);
    if (!vocabulary.index_.Insert(spelling, id))
      return base::DataLoss("the token \"{}\" has two ids, {} and {}", spelling,
                            *vocabulary.Find(spelling), id);
  }
  return vocabulary;
}

}  // namespace longspan::text
