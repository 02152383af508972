// Text to token ids and back, as the tokenizer.json of a Hugging Face model folder says.
//
// Supported: byte-level BPE (`model.type` BPE without dropout, byte fallback or affixes) with the
// normalizers NFC and Sequence, the pre-tokenizers Split, Digits, ByteLevel and Sequence, added
// tokens, the post-processors TemplateProcessing, ByteLevel and Sequence, and the decoders
// ByteLevel and Sequence. That covers the tokenizers of GPT-2, Llama 3, Qwen2, Qwen3 and
// DeepSeek-V3. What a file uses beyond that is refused at load with a sentence that names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longspan::text {

struct EncodeOptions {
  // Put the tokens around the text that the model was trained with (begin of text, mostly). Off for
  // a text that a chat template rendered: the template writes them itself.
  bool add_special = false;
};

// Immutable after loading and safe to use from many threads at once.
class Tokenizer {
 public:
  // Reads tokenizer.json and, where there is one, tokenizer_config.json of a model folder.
  // NotFound without tokenizer.json; DataLoss for broken JSON or a vocabulary that contradicts
  // itself; Unimplemented for a part that is not supported.
  static base::Result<std::unique_ptr<const Tokenizer>> Load(
      const std::filesystem::path& model_dir);
  // The same from the files' contents; an empty `tokenizer_config_json` counts as no such file.
  static base::Result<std::unique_ptr<const Tokenizer>> FromJson(
      std::string_view tokenizer_json, std::string_view tokenizer_config_json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of a text; names of added tokens inside it (`<|im_start|>`) become those tokens.
  // InvalidArgument, with the byte's offset, for a text that is not UTF-8, and for a byte for which
  // the vocabulary has no token. Time grows as n log n with the text at worst, linearly for usual
  // text.
  base::Result<std::vector<int32_t>> Encode(std::string_view text,
                                            EncodeOptions options = {}) const;

  // The text of ids, always UTF-8: bytes that form no character become U+FFFD, one for each maximal
  // part of one. `skip_special` leaves out the ids for which is_special is true. InvalidArgument
  // for an id outside [0, vocab_size()).
  base::Result<std::string> Decode(std::span<const int32_t> ids, bool skip_special) const;

  // Number of ids, added tokens included: the ids are [0, vocab_size()). A model's embedding may
  // have more.
  int32_t vocab_size() const;
  // The id of a token in the spelling of tokenizer.json ("<|im_end|>", "Ġthe"), if there is one.
  std::optional<int32_t> TokenId(std::string_view token) const;
  // The spelling of tokenizer.json. `id` must be in [0, vocab_size()). Lives as long as the
  // tokenizer.
  std::string_view TokenText(int32_t id) const;
  // The bytes that the token stands for, not always whole characters. Likewise.
  std::string_view TokenBytes(int32_t id) const;
  // Whether the id is an added token marked as special (and in the vocabulary at all).
  bool IsSpecial(int32_t id) const;
  // bos_token and eos_token of tokenizer_config.json, where they are given.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace longspan::text
