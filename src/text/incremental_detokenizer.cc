#include "text/incremental_detokenizer.h"

#include <utility>

#include "text/unicode.h"

namespace longspan::text {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

std::string IncrementalDetokenizer::Append(int32_t id) {
  std::string text;
  if (id < 0 || id >= tokenizer_.vocab_size()) return text;
  if (skip_special_ && tokenizer_.IsSpecial(id)) return text;
  pending_.append(tokenizer_.TokenBytes(id));
  pending_.erase(0, AppendCharacters(pending_, text));
  return text;
}

std::string IncrementalDetokenizer::Finish() {
  if (std::exchange(pending_, {}).empty()) return {};
  return std::string(kReplacementCharacter);
}

}  // namespace longspan::text
