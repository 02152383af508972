#include "apps/generate_output.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

ordered_json LogprobsJson(const std::vector<engine::TokenOutput>& tokens) {
  ordered_json list = ordered_json::array();
  for (const engine::TokenOutput& token : tokens) {
    ordered_json top = ordered_json::array();
    for (const auto& [id, logprob] : token.top_logprobs)
      top.push_back({{"id", id}, {"logprob", logprob}});
    list.push_back({{"id", token.token}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return list;
}

}  // namespace

ordered_json GeneratedOutput::ToJson(bool with_logprobs) const {
  const auto completion_tokens = static_cast<int64_t>(ids.size());
  const double decode_s = info.finish_s - info.first_token_s;
  const auto rate = [](int64_t count, double seconds) -> ordered_json {
    if (count <= 0 || seconds <= 0) return nullptr;
    return static_cast<double>(count) / seconds;
  };
  ordered_json json = {
      {"text", text},
      {"ids", ids},
      {"finish_reason", engine::ReasonName(reason)},
      {"prompt_tokens", prompt_tokens},
      {"cached_tokens", info.cached_tokens},
      {"completion_tokens", completion_tokens},
      {"ttft_s", info.first_token_s},
      {"prefill_tokens_per_s", rate(prompt_tokens - info.cached_tokens, info.first_token_s)},
      {"decode_tokens_per_s", rate(completion_tokens - 1, decode_s)},
  };
  if (with_logprobs) json["logprobs"] = LogprobsJson(tokens);
  return json;
}

GenerateSink::GenerateSink(Options options, size_t prompts)
    : options_(std::move(options)), outputs_(prompts) {}

void GenerateSink::Expect(plan::SequenceId sequence, size_t index, int64_t prompt_tokens) {
  outputs_[index].prompt_tokens = prompt_tokens;
  Stream stream{.index = index, .detokenizer = {}, .stop = text::StopMatcher(options_.stop)};
  if (options_.tokenizer != nullptr)
    stream.detokenizer.emplace(*options_.tokenizer, /*skip_special=*/true);
  streams_.emplace(sequence, std::move(stream));
}

void GenerateSink::OnPrefill(plan::SequenceId /*sequence*/, int64_t done, int64_t total) {
  if (total < options_.progress_from) return;
  if (done < total) {
    progress_.Tokens(done, total);
  } else {
    progress_.Clear();
  }
}

bool GenerateSink::OnToken(plan::SequenceId sequence, const engine::TokenOutput& token) {
  Stream& stream = streams_.at(sequence);
  GeneratedOutput& output = outputs_[stream.index];
  output.ids.push_back(token.token);
  output.tokens.push_back(token);
  if (!stream.detokenizer) return true;
  const bool read = Emit(stream, stream.stop.Append(stream.detokenizer->Append(token.token)));
  return read && !stream.stop.matched();
}

void GenerateSink::OnFinish(plan::SequenceId sequence, engine::FinishReason reason,
                            const engine::FinishInfo& info) {
  Stream& stream = streams_.at(sequence);
  if (stream.detokenizer && !stream.stop.matched()) {
    Emit(stream, stream.stop.Append(stream.detokenizer->Finish()));
    Emit(stream, stream.stop.Finish());
  }
  GeneratedOutput& output = outputs_[stream.index];
  output.reason = reason;
  output.info = info;
  progress_.Clear();
}

bool GenerateSink::Emit(Stream& stream, const std::string& text) {
  if (text.empty()) return true;
  outputs_[stream.index].text += text;
  return !options_.on_text || options_.on_text(text);
}

}  // namespace longspan::apps
