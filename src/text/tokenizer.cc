#include "text/tokenizer.h"

#include <cerrno>
#include <deque>
#include <fstream>
#include <limits>
#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace longspan::text {
namespace {

using base::InvalidArgument;
using base::OkStatus;
using base::Result;
using base::Status;

// ICU and the tables of a piece count in 32 bits.
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

Result<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return base::NotFound("there is no file {}", path.string());
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string content(file ? static_cast<size_t>(file.tellg()) : 0, '\0');
  file.seekg(0).read(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file) return base::SystemError(errno, fmt::format("read {}", path.string()));
  return content;
}

// Tokens that are looked for in the raw text, or those in the normalized text.
Result<AddedTokenMatcher> MakeMatcher(const TokenizerDefinition& definition, bool normalized) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : definition.added_tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && definition.nfc) {
      LONGSPAN_ASSIGN_OR_RETURN(auto content, ToNfc(token.content));
      if (content) token.content = *std::move(content);
    }
    tokens.push_back(std::move(token));
  }
  return AddedTokenMatcher(std::move(tokens));
}

}  // namespace

struct Tokenizer::Parts {
  TokenizerDefinition definition;
  AddedTokenMatcher raw_tokens;
  AddedTokenMatcher normalized_tokens;
  std::vector<bool> special;  // by id
};

namespace {

// One call of Encode.
class Encoding {
 public:
  Encoding(const TokenizerDefinition& definition, size_t text_size)
      : definition_(definition), encoder_(definition.bpe, text_size) {}

  // Raw text: added tokens first, the rest is normalized and searched again.
  Status Append(std::string_view text, const AddedTokenMatcher& raw_tokens,
                const AddedTokenMatcher& normalized_tokens) {
    for (const TextPart& raw : Split(raw_tokens, text)) {
      if (AppendToken(raw)) continue;
      LONGSPAN_ASSIGN_OR_RETURN(const std::string_view normalized, Normalize(raw.text));
      for (const TextPart& part : Split(normalized_tokens, normalized)) {
        if (AppendToken(part)) continue;
        LONGSPAN_RETURN_IF_ERROR(AppendPlain(part.text));
      }
    }
    return OkStatus();
  }

  void Append(std::span<const int32_t> ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }
  std::vector<int32_t> Take() { return std::move(ids_); }

 private:
  static std::vector<TextPart> Split(const AddedTokenMatcher& matcher, std::string_view text) {
    std::vector<TextPart> parts;
    matcher.Split(text, parts);
    return parts;
  }

  bool AppendToken(const TextPart& part) {
    if (part.id >= 0) ids_.push_back(part.id);
    return part.id >= 0;
  }

  Result<std::string_view> Normalize(std::string_view text) {
    if (!definition_.nfc) return text;
    LONGSPAN_ASSIGN_OR_RETURN(auto normalized, ToNfc(text));
    if (!normalized) return text;
    return std::string_view(storage_.emplace_back(*std::move(normalized)));
  }

  Status AppendPlain(std::string_view text) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto pieces, definition_.pre_tokenizer.Split(text, storage_));
    for (const std::string_view piece : pieces)
      LONGSPAN_RETURN_IF_ERROR(encoder_.Append(piece, ids_));
    return OkStatus();
  }

  const TokenizerDefinition& definition_;
  std::deque<std::string> storage_;  // texts that the pieces are views of
  PieceEncoder encoder_;
  std::vector<int32_t> ids_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<const Tokenizer>> Tokenizer::Load(const std::filesystem::path& model_dir) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string tokenizer, ReadFile(model_dir / "tokenizer.json"));
  std::string config;
  const auto config_path = model_dir / "tokenizer_config.json";
  if (std::error_code error; std::filesystem::exists(config_path, error)) {
    LONGSPAN_ASSIGN_OR_RETURN(config, ReadFile(config_path));
  }
  auto loaded = FromJson(tokenizer, config);
  if (!loaded.ok()) return loaded.status().WithContext(model_dir.string());
  return loaded;
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::FromJson(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  LONGSPAN_ASSIGN_OR_RETURN(auto definition, ParseTokenizer(tokenizer_json, tokenizer_config_json));
  LONGSPAN_ASSIGN_OR_RETURN(auto raw_tokens, MakeMatcher(definition, false));
  LONGSPAN_ASSIGN_OR_RETURN(auto normalized_tokens, MakeMatcher(definition, true));
  std::vector<bool> special(static_cast<size_t>(definition.vocabulary.size()));
  for (const AddedToken& token : definition.added_tokens)
    special[static_cast<size_t>(token.id)] = token.special;
  auto parts =
      std::make_unique<const Parts>(Parts{std::move(definition), std::move(raw_tokens),
                                          std::move(normalized_tokens), std::move(special)});
  return std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes)
    return InvalidArgument("the text has {} bytes: give at most {}", text.size(), kMaxTextBytes);
  LONGSPAN_RETURN_IF_ERROR(CheckUtf8(text));
  const TokenizerDefinition& definition = parts_->definition;
  Encoding encoding(definition, text.size());
  if (options.add_special) encoding.Append(definition.prefix);
  LONGSPAN_RETURN_IF_ERROR(encoding.Append(text, parts_->raw_tokens, parts_->normalized_tokens));
  if (options.add_special) encoding.Append(definition.suffix);
  return encoding.Take();
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size())
      return InvalidArgument("there is no token {}: the vocabulary has {} tokens, from 0 on", id,
                             vocab_size());
    if (!(skip_special && IsSpecial(id))) bytes.append(TokenBytes(id));
  }
  std::string text;
  text.reserve(bytes.size());
  if (AppendCharacters(bytes, text) < bytes.size()) text.append(kReplacementCharacter);
  return text;
}

int32_t Tokenizer::vocab_size() const { return parts_->definition.vocabulary.size(); }

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  return parts_->definition.vocabulary.Find(token);
}

std::string_view Tokenizer::TokenText(int32_t id) const {
  LONGSPAN_CHECK(id >= 0 && id < vocab_size(), "no token {} in {}", id, vocab_size());
  return parts_->definition.vocabulary.spelling(id);
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  LONGSPAN_CHECK(id >= 0 && id < vocab_size(), "no token {} in {}", id, vocab_size());
  return parts_->definition.vocabulary.bytes(id);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::bos_id() const { return parts_->definition.bos_id; }

std::optional<int32_t> Tokenizer::eos_id() const { return parts_->definition.eos_id; }

}  // namespace longspan::text
