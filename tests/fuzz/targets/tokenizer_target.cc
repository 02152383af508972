#include <memory>
#include <string>

#include "base/check.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "text/incremental_detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_test_support.h"

namespace longspan::testing {
namespace {

using text::Tokenizer;

// Ids and text must be one and the same thing, whichever way round.
void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text);
  if (!ids.ok()) {
    LONGSPAN_CHECK(ids.status().code() == base::StatusCode::kInvalidArgument, "{}",
                   ids.status().message());
    return;
  }
  for (const int32_t id : *ids)
    LONGSPAN_CHECK(id >= 0 && id < tokenizer.vocab_size(), "the text has token {}", id);
  for (const bool skip_special : {false, true}) {
    const auto decoded = tokenizer.Decode(*ids, skip_special);
    LONGSPAN_CHECK(decoded.ok(), "{}", decoded.status().message());
    text::IncrementalDetokenizer detokenizer(tokenizer, skip_special);
    std::string pieces;
    for (const int32_t id : *ids) pieces += detokenizer.Append(id);
    pieces += detokenizer.Finish();
    LONGSPAN_CHECK(pieces == *decoded, "id by id the text is another one");
  }
}

// The text that a tokenizer is trained to see is the text that its tokens make.
void CheckExact(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.Encode(text);
  if (!ids.ok()) return;
  const auto decoded = tokenizer.Decode(*ids, false);
  LONGSPAN_CHECK(decoded.ok(), "{}", decoded.status().message());
  const auto again = tokenizer.Encode(*decoded);
  LONGSPAN_CHECK(again.ok() && *again == *ids, "the decoded text has other tokens");
}

}  // namespace

void FuzzTokenizer(FuzzInput input) {
  static const std::unique_ptr<const Tokenizer> small =
      std::move(Tokenizer::FromJson(text::SmallTokenizerJson().dump(), {})).value();
  static const std::unique_ptr<const Tokenizer> embedded =
      std::move(Tokenizer::Load(LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe")).value();
  const std::string_view text = AsText(input);
  if (!text.starts_with('{')) {
    for (const Tokenizer* tokenizer : {small.get(), embedded.get()}) {
      CheckRoundTrip(*tokenizer, text);
      CheckExact(*tokenizer, text);
    }
    return;
  }
  const auto loaded = Tokenizer::FromJson(text, {});
  if (!loaded.ok()) {
    LONGSPAN_CHECK(!loaded.status().message().empty(), "an error without a sentence");
    return;
  }
  CheckRoundTrip(**loaded, "Hello, wörld! 123 <s> ab abc\n\n 中文 \xF0\x9F\x98\x80");
  CheckRoundTrip(**loaded, text.substr(0, 500));
}

}  // namespace longspan::testing
