#include "text/tokenizer_json.h"

#include <utility>

#include "text/json_members.h"
#include "text/tokenizer_json_parts.h"

namespace longspan::text {
namespace {

using base::DataLoss;
using base::OkStatus;
using base::Result;
using base::Status;

Result<JsonObject> ParseDocument(simdjson::dom::parser& parser, std::string_view json) {
  if (json.empty()) return DataLoss("the file is empty");
  JsonElement root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error != simdjson::SUCCESS)
    return DataLoss("broken JSON: {}", simdjson::error_message(error));
  return AsObject(root, "the file");
}

Result<AddedToken> ParseAddedToken(JsonElement element) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject entry, AsObject(element, "an added token"));
  AddedToken token;
  LONGSPAN_ASSIGN_OR_RETURN(token.content, GetString(entry, "content"));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement id, GetMember(entry, "id"));
  LONGSPAN_ASSIGN_OR_RETURN(token.id, AsTokenId(id, fmt::format("\"{}\"", token.content)));
  LONGSPAN_ASSIGN_OR_RETURN(token.special, GetBool(entry, "special", false));
  LONGSPAN_ASSIGN_OR_RETURN(token.lstrip, GetBool(entry, "lstrip", false));
  LONGSPAN_ASSIGN_OR_RETURN(token.rstrip, GetBool(entry, "rstrip", false));
  LONGSPAN_ASSIGN_OR_RETURN(token.single_word, GetBool(entry, "single_word", false));
  LONGSPAN_ASSIGN_OR_RETURN(token.normalized, GetBool(entry, "normalized", !token.special));
  return token;
}

Result<std::vector<AddedToken>> ParseAddedTokens(JsonObject file) {
  std::vector<AddedToken> tokens;
  if (!FindMember(file, "added_tokens")) return tokens;
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray array, GetArray(file, "added_tokens"));
  for (const JsonElement element : array) {
    auto token = ParseAddedToken(element);
    if (!token.ok())
      return token.status().WithContext(fmt::format("added token {}", tokens.size()));
    tokens.push_back(std::move(token).value());
  }
  return tokens;
}

Result<TokenizerDefinition> ParseFile(JsonObject file) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement model_value, GetMember(file, "model"));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject model, AsObject(model_value, "\"model\""));
  LONGSPAN_RETURN_IF_ERROR(CheckModel(model));
  LONGSPAN_ASSIGN_OR_RETURN(const bool nfc, ParseNormalizer(FindMember(file, "normalizer")));
  LONGSPAN_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                            ParsePreTokenizer(FindMember(file, "pre_tokenizer")));
  LONGSPAN_RETURN_IF_ERROR(CheckDecoder(FindMember(file, "decoder")));
  LONGSPAN_ASSIGN_OR_RETURN(auto added_tokens, ParseAddedTokens(file));
  LONGSPAN_ASSIGN_OR_RETURN(auto parsed, ParseVocabulary(model, added_tokens));
  LONGSPAN_ASSIGN_OR_RETURN(Bpe bpe, ParseBpe(model, parsed));
  LONGSPAN_ASSIGN_OR_RETURN(auto around, ParsePostProcessor(FindMember(file, "post_processor"),
                                                            parsed.vocabulary.size()));
  return TokenizerDefinition{.vocabulary = std::move(parsed.vocabulary),
                             .bpe = std::move(bpe),
                             .added_tokens = std::move(added_tokens),
                             .nfc = nfc,
                             .pre_tokenizer = std::move(pre_tokenizer),
                             .prefix = std::move(around.prefix),
                             .suffix = std::move(around.suffix),
                             .bos_id = std::nullopt,
                             .eos_id = std::nullopt};
}

// "<s>", {"content": "<s>", ...} or null. A token that the vocabulary does not have counts as none.
Result<std::optional<int32_t>> ConfigToken(JsonObject config, std::string_view key,
                                           const Vocabulary& vocabulary) {
  const auto value = FindMember(config, key);
  if (!value) return std::optional<int32_t>();
  std::string_view content;
  if (value->is_object()) {
    LONGSPAN_ASSIGN_OR_RETURN(const JsonObject token, AsObject(*value, key));
    LONGSPAN_ASSIGN_OR_RETURN(content, GetString(token, "content"));
  } else {
    LONGSPAN_ASSIGN_OR_RETURN(content, AsString(*value, fmt::format("\"{}\"", key)));
  }
  return vocabulary.Find(content);
}

// `add_bos_token` and `add_eos_token`, where either is there, replace the post-processor's
// template.
Status ApplyConfig(JsonObject config, TokenizerDefinition& definition) {
  LONGSPAN_ASSIGN_OR_RETURN(definition.bos_id,
                            ConfigToken(config, "bos_token", definition.vocabulary));
  LONGSPAN_ASSIGN_OR_RETURN(definition.eos_id,
                            ConfigToken(config, "eos_token", definition.vocabulary));
  if (!FindMember(config, "add_bos_token") && !FindMember(config, "add_eos_token"))
    return OkStatus();
  LONGSPAN_ASSIGN_OR_RETURN(const bool add_bos, GetBool(config, "add_bos_token", false));
  LONGSPAN_ASSIGN_OR_RETURN(const bool add_eos, GetBool(config, "add_eos_token", false));
  definition.prefix.clear();
  definition.suffix.clear();
  // Without such a token there is nothing to add, as in transformers.
  if (add_bos && definition.bos_id) definition.prefix.push_back(*definition.bos_id);
  if (add_eos && definition.eos_id) definition.suffix.push_back(*definition.eos_id);
  return OkStatus();
}

Status ParseConfig(std::string_view json, TokenizerDefinition& definition) {
  simdjson::dom::parser parser;
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject config, ParseDocument(parser, json));
  return ApplyConfig(config, definition);
}

Result<TokenizerDefinition> ParseTokenizerJson(std::string_view json) {
  simdjson::dom::parser parser;
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject file, ParseDocument(parser, json));
  return ParseFile(file);
}

}  // namespace

Result<TokenizerDefinition> ParseTokenizer(std::string_view tokenizer_json,
                                           std::string_view config_json) {
  auto definition = ParseTokenizerJson(tokenizer_json);
  if (!definition.ok()) return definition.status().WithContext("tokenizer.json");
  if (!config_json.empty()) {
    const Status status = ParseConfig(config_json, *definition);
    if (!status.ok()) return status.WithContext("tokenizer_config.json");
  }
  return definition;
}

}  // namespace longspan::text
