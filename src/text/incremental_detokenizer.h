// Text of ids that arrive one by one, in whole characters.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace longspan::text {

// All that Append and Finish return, joined, is Tokenizer::Decode of the same ids. A character
// whose bytes are spread over several tokens is held back until its last byte is there. One
// sequence, one thread; keeps a reference to the tokenizer, which must outlive it.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special);

  // The text that became certain with this id, possibly none. An id outside the vocabulary (a model
  // may have more logits than its tokenizer has tokens) adds nothing.
  std::string Append(int32_t id);
  // What was held back: nothing, or U+FFFD for a character that never got its last byte. The
  // detokenizer is then as new.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;  // the first bytes of an unfinished character, at most 3
};

}  // namespace longspan::text
