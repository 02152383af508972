#include "server/served_model.h"

#include <algorithm>

#include "server/fields.h"
#include "server/json.h"

namespace longspan::server {

void ReadSamplingDefaults(std::string_view generation_config, spec::SamplingSpec& sampling) {
  const auto config = ParseJson(generation_config);
  if (!config.ok() || !config->is_object()) return;
  spec::SamplingSpec read = sampling;
  bool do_sample = true;
  Fields fields(*config);
  fields.Read("do_sample", do_sample);
  fields.Read("temperature", read.temperature);
  fields.Read("top_p", read.top_p);
  fields.Read("top_k", read.top_k);
  fields.Read("min_p", read.min_p);
  fields.Read("repetition_penalty", read.repetition_penalty);
  read.top_k = std::max(0, read.top_k);
  if (do_sample && fields.status().ok() && spec::CheckSampling(read).ok()) sampling = read;
}

int64_t RoomFor(int64_t prompt_tokens, const engine::RequestLimits& limits) {
  // The last token of an output is not cached.
  const int64_t room =
      std::min(limits.context_length - prompt_tokens, limits.capacity_tokens - prompt_tokens + 1);
  return std::max<int64_t>(1, room);
}

}  // namespace longspan::server
