// Responses of /generate.
#include "server/formatter.h"
#include "server/formatter_parts.h"

namespace longspan::server {
namespace {

// Of one sequence; cumulative in streams, too, unless these are incremental: then it is what has
// come since the last event.
struct Output {
  int64_t tokens = 0;  // of all
  std::string text;
  std::vector<int32_t> ids;
  Json logprobs = Json::array();
  Json top_logprobs = Json::array();
  std::optional<Finish> finish;
  int64_t cached_tokens = 0;
};

// Of one prompt's tokens.
struct Scores {
  Json logprobs = Json::array();
  Json top_logprobs = Json::array();
};

class NativeFormatter : public Formatter {
 public:
  NativeFormatter(const Call& call, const ServedModel& model)
      : call_(call),
        model_(model),
        outputs_(call.sequences()),
        scores_(call.prompt_tokens.size()) {}

  void OnPrefill(const PrefillEvent& event, std::string& out) override {
    Json json = OutputJson(event.sequence);
    json["prompt_progress"] = ProgressJson(event);
    Tell(event.sequence, std::move(json), out);
  }

  void OnScore(const ScoreEvent& event) override {
    Scores& scores = scores_[event.sequence / call_.choices()];
    AddLogprobs(event.token, scores.logprobs, scores.top_logprobs);
  }

  void OnToken(TokenEvent event, std::string& out) override {
    Output& output = outputs_[event.sequence];
    output.text += event.text;
    output.cached_tokens = event.cached_tokens;
    if (event.token) {
      ++output.tokens;
      output.ids.push_back(event.token->token);
      if (call_.logprobs) AddLogprobs(*event.token, output.logprobs, output.top_logprobs);
    }
    if (event.finish) output.finish = event.finish;
    if (!call_.stream) return;
    if (event.text.empty() && !event.finish && model_.tokenizer != nullptr) return;
    Tell(event.sequence, OutputJson(event.sequence), out);
  }

  void OnEnd(std::string& out) override { AppendDone(out); }

  Json Body() override {
    if (!is_array()) return OutputJson(0);
    Json array = Json::array();
    for (size_t i = 0; i < outputs_.size(); ++i) array.push_back(OutputJson(i));
    return array;
  }

  // Benchmark clients take every line for data, so it is an event, and one without news.
  void OnSilence(std::string& out) override {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (!outputs_[i].finish) return Tell(i, OutputJson(i), out);
  }

 private:
  void Tell(size_t sequence, Json json, std::string& out) {
    if (is_array()) json["index"] = sequence;
    AppendEvent(json, out);
    if (!call_.incremental) return;
    Output& output = outputs_[sequence];
    output.text.clear();
    output.ids.clear();
    output.logprobs.clear();
    output.top_logprobs.clear();
  }

  bool is_array() const { return call_.is_batch || call_.generation.choices > 1; }

  Json OutputJson(size_t sequence) const {
    const Output& output = outputs_[sequence];
    const size_t prompt = sequence / call_.choices();
    Json meta = {{"id", outputs_.size() == 1 ? call_.id : fmt::format("{}_{}", call_.id, sequence)},
                 {"finish_reason", nullptr},
                 {"prompt_tokens", call_.prompt_tokens[prompt]},
                 {"completion_tokens", output.tokens},
                 {"cached_tokens", output.cached_tokens},
                 {"weight_version", "default"}};
    if (call_.logprobs) {
      meta["output_token_logprobs"] = output.logprobs;
      if (call_.generation.common.sampling.top_logprobs > 0)
        meta["output_top_logprobs"] = output.top_logprobs;
    }
    if (output.finish) AddFinish(*output.finish, meta);
    if (output.finish && !call_.scored_prompts.empty()) AddPromptLogprobs(prompt, meta);
    Json json = {{"text", output.text}, {"meta_info", std::move(meta)}};
    // In every cumulative event they would cost the square of the output.
    if (output.finish || call_.incremental || model_.tokenizer == nullptr)
      json["output_ids"] = output.ids;
    return json;
  }

  static void AddFinish(const Finish& finish, Json& meta) {
    Json reason = {{"type", engine::ReasonName(finish.reason)}};
    if (finish.reason == engine::FinishReason::kLength) reason["length"] = finish.completion_tokens;
    if (Json matched = MatchedStop(finish); !matched.is_null()) reason["matched"] = matched;
    if (finish.reason == engine::FinishReason::kAbort) reason["message"] = "aborted";
    meta["finish_reason"] = std::move(reason);
    meta["queue_time"] = finish.info.queue_s;
    meta["e2e_latency"] = finish.info.finish_s;
    meta["time_to_first_token"] = finish.info.first_token_s;
    const double decode_s = finish.info.finish_s - finish.info.first_token_s;
    if (finish.completion_tokens > 1 && decode_s > 0)
      meta["decode_throughput"] = static_cast<double>(finish.completion_tokens - 1) / decode_s;
  }

  // [logprob, id, text or null]
  Json LogprobJson(int32_t id, float logprob) const {
    Json text;
    if (call_.text_in_logprobs) text = TokenName(model_.tokenizer, id);
    return Json::array({FiniteLogprob(logprob), id, std::move(text)});
  }

  void AddLogprobs(const engine::TokenOutput& token, Json& logprobs, Json& top_logprobs) const {
    logprobs.push_back(LogprobJson(token.token, token.logprob));
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top_logprobs) top.push_back(LogprobJson(id, logprob));
    top_logprobs.push_back(std::move(top));
  }

  // Of the prompt's tokens from logprob_start_len on; its very first has none.
  void AddPromptLogprobs(size_t prompt, Json& meta) const {
    Json logprobs = Json::array();
    Json top = Json::array();
    if (call_.scored_from == 0) {
      const int32_t first = call_.scored_prompts[prompt][0];
      logprobs.push_back(Json::array({nullptr, first, LogprobJson(first, 0)[2]}));
      top.push_back(nullptr);
    }
    const Scores& scores = scores_[prompt];
    logprobs.insert(logprobs.end(), scores.logprobs.begin(), scores.logprobs.end());
    top.insert(top.end(), scores.top_logprobs.begin(), scores.top_logprobs.end());
    meta["input_token_logprobs"] = std::move(logprobs);
    if (call_.generation.common.sampling.top_logprobs > 0)
      meta["input_top_logprobs"] = std::move(top);
  }

  Call call_;
  const ServedModel& model_;
  std::vector<Output> outputs_;
  std::vector<Scores> scores_;
};

}  // namespace

std::unique_ptr<Formatter> MakeNativeFormatter(const Call& call, const ServedModel& model) {
  return std::make_unique<NativeFormatter>(call, model);
}

}  // namespace longspan::server
