#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "text/byte_level.h"
#include "text/tokenizer_json_parts.h"

namespace longspan::text {
namespace {

using base::DataLoss;
using base::OkStatus;
using base::Result;
using base::Status;
using base::Unimplemented;

// The spellings by id while they are collected; views of the JSON document.
class TokenTable {
 public:
  explicit TokenTable(size_t capacity) : tokens_(capacity) {}

  Status Put(int32_t id, std::string_view spelling) {
    const auto at = static_cast<size_t>(id);
    if (at >= tokens_.size())
      return DataLoss("the ids are not contiguous: \"{}\" has id {}, but there are {} tokens",
                      spelling, id, tokens_.size());
    if (tokens_[at] && *tokens_[at] != spelling)
      return DataLoss("two tokens have the id {}: \"{}\" and \"{}\"", id, *tokens_[at], spelling);
    tokens_[at] = spelling;
    return OkStatus();
  }

  // Without the free ids at the end, which remain where added tokens are tokens of the model.
  Result<std::vector<std::string_view>> Take() const {
    std::vector<std::string_view> tokens;
    const auto first_free = std::ranges::find(tokens_, Spelling());
    const auto used_again = std::find_if(first_free, tokens_.end(),
                                         [](const auto& token) { return token.has_value(); });
    if (used_again != tokens_.end())
      return DataLoss("the ids are not contiguous: no token has the id {}",
                      first_free - tokens_.begin());
    for (auto token = tokens_.begin(); token != first_free; ++token) tokens.push_back(**token);
    return tokens;
  }

 private:
  using Spelling = std::optional<std::string_view>;
  std::vector<Spelling> tokens_;
};

Result<std::vector<std::pair<std::string_view, int32_t>>> ReadModelTokens(JsonObject model) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement value, GetMember(model, "vocab"));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject vocab, AsObject(value, "\"vocab\""));
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  tokens.reserve(vocab.size());
  for (const auto& [spelling, id_value] : vocab) {
    int64_t id = -1;
    if (id_value.get(id) != simdjson::SUCCESS || id < 0 || id >= INT32_MAX)
      return DataLoss("the id of the token \"{}\" must be an integer from 0 on", spelling);
    tokens.emplace_back(spelling, static_cast<int32_t>(id));
  }
  return tokens;
}

// "a b" or ["a", "b"]
Result<std::pair<std::string_view, std::string_view>> ReadMerge(JsonElement merge, size_t index) {
  const Status broken = DataLoss("merge {} must be two tokens: \"a b\" or [\"a\", \"b\"]", index);
  if (std::string_view both; merge.get(both) == simdjson::SUCCESS) {
    const size_t space = both.find(' ');
    if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos)
      return broken;
    return std::pair(both.substr(0, space), both.substr(space + 1));
  }
  JsonArray pair;
  std::string_view left;
  std::string_view right;
  const bool two_strings = merge.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                           pair.at(0).get(left) == simdjson::SUCCESS &&
                           pair.at(1).get(right) == simdjson::SUCCESS;
  if (!two_strings) return broken;
  return std::pair(left, right);
}

Result<std::vector<BpeMerge>> ReadMerges(JsonObject model, const ParsedVocabulary& parsed) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray array, GetArray(model, "merges"));
  std::vector<BpeMerge> merges;
  merges.reserve(array.size());
  const auto find = [&](std::string_view spelling) -> Result<int32_t> {
    const auto id = parsed.vocabulary.Find(spelling);
    if (id && parsed.in_model[static_cast<size_t>(*id)]) return *id;
    return DataLoss("merge {} needs the token \"{}\", which is not in the vocabulary",
                    merges.size(), spelling);
  };
  std::string joined;
  for (const JsonElement element : array) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto pair, ReadMerge(element, merges.size()));
    joined.assign(pair.first).append(pair.second);
    BpeMerge merge;
    LONGSPAN_ASSIGN_OR_RETURN(merge.left, find(pair.first));
    LONGSPAN_ASSIGN_OR_RETURN(merge.right, find(pair.second));
    LONGSPAN_ASSIGN_OR_RETURN(merge.merged, find(joined));
    merges.push_back(merge);
  }
  return merges;
}

StringIndex IndexWholePieces(const ParsedVocabulary& parsed) {
  const Vocabulary& vocabulary = parsed.vocabulary;
  StringIndex index(static_cast<size_t>(vocabulary.size()));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (parsed.in_model[static_cast<size_t>(id)] && vocabulary.is_byte_level(id))
      index.Insert(vocabulary.bytes(id), id);
  }
  return index;
}

}  // namespace

Result<ParsedVocabulary> ParseVocabulary(JsonObject model,
                                         const std::vector<AddedToken>& added_tokens) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto model_tokens, ReadModelTokens(model));
  TokenTable table(model_tokens.size() + added_tokens.size());
  for (const auto& [spelling, id] : model_tokens) LONGSPAN_RETURN_IF_ERROR(table.Put(id, spelling));
  for (const AddedToken& token : added_tokens)
    LONGSPAN_RETURN_IF_ERROR(table.Put(token.id, token.content));
  LONGSPAN_ASSIGN_OR_RETURN(const auto tokens, table.Take());
  LONGSPAN_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(tokens));
  std::vector<bool> in_model(tokens.size());
  for (const auto& [spelling, id] : model_tokens) in_model[static_cast<size_t>(id)] = true;
  return ParsedVocabulary{std::move(vocabulary), std::move(in_model)};
}

Status CheckModel(JsonObject model) {
  // Files of the first years have no type.
  const bool untyped = !FindMember(model, "type") && FindMember(model, "merges");
  if (!untyped) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto type, GetString(model, "type"));
    if (type != "BPE")
      return Unimplemented("the model type \"{}\" is not supported: use a byte-level BPE", type);
  }
  if (const auto dropout = FindMember(model, "dropout")) {
    double probability = 1;
    if (dropout->get(probability) != simdjson::SUCCESS || probability != 0)
      return Unimplemented("BPE with \"dropout\" is not supported: set it to null");
  }
  LONGSPAN_ASSIGN_OR_RETURN(const bool byte_fallback, GetBool(model, "byte_fallback", false));
  if (byte_fallback)
    return Unimplemented("BPE with \"byte_fallback\" is not supported: use a byte-level BPE");
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!FindMember(model, affix)) continue;
    LONGSPAN_ASSIGN_OR_RETURN(const auto value, GetString(model, affix));
    if (!value.empty()) return Unimplemented("BPE with a \"{}\" is not supported", affix);
  }
  return OkStatus();
}

Result<Bpe> ParseBpe(JsonObject model, const ParsedVocabulary& parsed) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto merges, ReadMerges(model, parsed));
  LONGSPAN_ASSIGN_OR_RETURN(const bool ignore_merges, GetBool(model, "ignore_merges", false));
  LONGSPAN_ASSIGN_OR_RETURN(const bool fuse_unknown, GetBool(model, "fuse_unk", false));
  Bpe bpe{.byte_ids = {}, .merges = BpeMergeTable(merges), .fuse_unknown = fuse_unknown};
  const auto find = [&](std::string_view spelling) {
    const auto id = parsed.vocabulary.Find(spelling);
    return id && parsed.in_model[static_cast<size_t>(*id)] ? *id : Bpe::kNoToken;
  };
  for (size_t byte = 0; byte < bpe.byte_ids.size(); ++byte)
    bpe.byte_ids[byte] = find(ByteSpelling(static_cast<uint8_t>(byte)));
  if (ignore_merges) bpe.whole_pieces = IndexWholePieces(parsed);
  if (FindMember(model, "unk_token")) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto unknown, GetString(model, "unk_token"));
    bpe.unknown_id = find(unknown);
    if (bpe.unknown_id == Bpe::kNoToken)
      return DataLoss("the \"unk_token\" \"{}\" is not in the vocabulary", unknown);
  }
  return bpe;
}

}  // namespace longspan::text
