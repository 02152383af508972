// What the endpoints know of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/tool_style.h"
#include "spec/sampling.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace longspan::server {

// Immutable while the server runs.
struct ServedModel {
  std::string name;                            // in responses
  std::string path;                            // of its folder
  int64_t created = 0;                         // seconds since 1970: when it was loaded
  const text::Tokenizer* tokenizer = nullptr;  // null: requests must come as token ids
  std::optional<text::ChatTemplate> chat_template;
  ToolStyle tool_style;  // of the template: FindToolStyle
  engine::RequestLimits limits;
  int64_t most_queued = INT64_MAX;  // sequences that the engine lets wait
  std::vector<int32_t> end_tokens;
  // What a request leaves open: of generation_config.json, else OpenAI's (temperature 1).
  spec::SamplingSpec sampling = {.temperature = 1};
};

// temperature, top_p, top_k, min_p and repetition_penalty of a generation_config.json, where it
// asks for sampling (`do_sample`) or gives a temperature; an unreadable file changes nothing.
void ReadSamplingDefaults(std::string_view generation_config, spec::SamplingSpec& sampling);

// The number of tokens that a prompt leaves in the context and in the cache.
int64_t RoomFor(int64_t prompt_tokens, const engine::RequestLimits& limits);

}  // namespace longspan::server
