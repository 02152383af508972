// The format of tokenizer.json (Hugging Face tokenizers) and of the members of
// tokenizer_config.json (Hugging Face transformers) that change what is encoded.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace longspan::text {

// A tokenizer as its files describe it, checked: every id lies in the vocabulary.
struct TokenizerDefinition {
  Vocabulary vocabulary;  // of the model and the added tokens
  Bpe bpe;
  std::vector<AddedToken> added_tokens;
  bool nfc = false;  // normalization form C before all else
  PreTokenizer pre_tokenizer;
  std::vector<int32_t> prefix;  // ids around a text that is encoded with special tokens
  std::vector<int32_t> suffix;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

// DataLoss for what is broken or contradicts itself, Unimplemented for what is not supported; the
// message names the file and the part. `config_json` may be empty.
base::Result<TokenizerDefinition> ParseTokenizer(std::string_view tokenizer_json,
                                                 std::string_view config_json);

}  // namespace longspan::text
