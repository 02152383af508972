// The parts of tokenizer.json, each parsed by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/json_members.h"
#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace longspan::text {

// model.vocab and added_tokens together.
struct ParsedVocabulary {
  Vocabulary vocabulary;
  std::vector<bool> in_model;  // by id: whether model.vocab has it
};
// Ids must be exactly 0 to n - 1, one spelling for each and the reverse.
base::Result<ParsedVocabulary> ParseVocabulary(JsonObject model,
                                               const std::vector<AddedToken>& added_tokens);

// Unimplemented unless `model` is a BPE of the kind that text/bpe.h does.
base::Status CheckModel(JsonObject model);
base::Result<Bpe> ParseBpe(JsonObject model, const ParsedVocabulary& parsed);

// The members of the file below may be absent.
// Whether the normalizer is NFC rather than nothing.
base::Result<bool> ParseNormalizer(std::optional<JsonElement> normalizer);
base::Result<PreTokenizer> ParsePreTokenizer(std::optional<JsonElement> pre_tokenizer);
// Ok when decoding is ByteLevel's.
base::Status CheckDecoder(std::optional<JsonElement> decoder);

// Ids around a text.
struct Surroundings {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};
base::Result<Surroundings> ParsePostProcessor(std::optional<JsonElement> post_processor,
                                              int32_t vocab_size);

}  // namespace longspan::text
