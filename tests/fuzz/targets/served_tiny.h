// The embedded model as the endpoints see it, without an engine.
#pragma once

#include "server/served_model.h"

namespace longspan::testing {

// One for the whole program.
inline const server::ServedModel& ServedTiny() {
  static const std::string folder = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
  static const auto tokenizer = std::move(text::Tokenizer::Load(folder)).value();
  static const server::ServedModel model = {
      .name = "tiny",
      .path = folder,
      .tokenizer = tokenizer.get(),
      .chat_template = text::ChatTemplate::Load(folder).value(),
      .limits = {.vocab_size = 1024,
                 .context_length = 4096,
                 .capacity_tokens = 8192,
                 .page_size = 64},
      .end_tokens = {2}};
  return model;
}

}  // namespace longspan::testing
