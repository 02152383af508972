// Responses of /v1/completions.
#include <iterator>
#include <utility>

#include "server/formatter.h"
#include "server/formatter_parts.h"

namespace longspan::server {
namespace {

// Of one sequence.
struct Choice {
  std::string text;
  std::vector<engine::TokenOutput> tokens;
  int64_t offset = 0;  // of the next token, in characters
  std::optional<Finish> finish;
  bool echoed = false;
};

class CompletionFormatter : public Formatter {
 public:
  CompletionFormatter(const Call& call, const ServedModel& model)
      : call_(call),
        model_(model),
        usage_(call),
        frame_(Head()),
        choices_(call.sequences()),
        scores_(call.prompt_tokens.size()) {}

  void OnPrefill(const PrefillEvent& event, std::string& out) override {
    Json json = Head();
    json["choices"] = Json::array();
    json["prompt_progress"] = ProgressJson(event);
    json["prompt_progress"]["index"] = event.sequence;
    usage_.AddTo(call_, json);
    AppendEvent(json, out);
  }

  void OnScore(const ScoreEvent& event) override {
    scores_[event.sequence / call_.choices()].push_back(event.token);
  }

  void OnToken(TokenEvent event, std::string& out) override {
    Choice& choice = choices_[event.sequence];
    usage_.OnToken(event);
    if (event.finish) {
      usage_.OnFinish(event);
      choice.finish = event.finish;
    }
    std::string text = std::move(event.text);
    std::vector<engine::TokenOutput> tokens;
    bool from_start = false;
    if (call_.echo && !std::exchange(choice.echoed, true)) {
      const size_t prompt = event.sequence / call_.choices();
      text.insert(0, call_.echo_text[prompt]);
      from_start = !call_.scored_prompts.empty();
      if (from_start) tokens = EchoedTokens(prompt);
    }
    if (call_.logprobs && event.token && event.in_text) tokens.push_back(std::move(*event.token));
    if (!call_.stream) {
      choice.text += text;
      std::move(tokens.begin(), tokens.end(), std::back_inserter(choice.tokens));
      return;
    }
    if (text.empty() && !event.finish && tokens.empty()) return;
    Json entry = {{"index", event.sequence}, {"text", std::move(text)}, {"logprobs", nullptr}};
    if (!tokens.empty()) entry["logprobs"] = Logprobs(tokens, from_start, choice);
    AddFinish(event.finish, entry);
    frame_.Append(entry, call_, usage_, out);
  }

  void OnEnd(std::string& out) override { AppendStreamEnd(call_, usage_, Head(), out); }

  Json Body() override {
    Json json = Head();
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      Json entry = {{"index", i}, {"text", std::move(choice.text)}, {"logprobs", nullptr}};
      if (call_.logprobs)
        entry["logprobs"] = Logprobs(choice.tokens, !call_.scored_prompts.empty(), choice);
      AddFinish(choice.finish, entry);
      json["choices"].push_back(std::move(entry));
    }
    json["usage"] = usage_.ToJson();
    return json;
  }

 private:
  Json Head() const {
    return {{"id", call_.id},
            {"object", "text_completion"},
            {"created", call_.created},
            {"model", model_.name}};
  }

  static void AddFinish(const std::optional<Finish>& finish, Json& entry) {
    entry["finish_reason"] = nullptr;
    if (!finish) return;
    entry["finish_reason"] = engine::ReasonName(finish->reason);
    entry["matched_stop"] = MatchedStop(*finish);
  }

  // A prompt's tokens, of which the first has no log-probability.
  std::vector<engine::TokenOutput> EchoedTokens(size_t prompt) const {
    std::vector<engine::TokenOutput> tokens = {{.token = call_.scored_prompts[prompt][0]}};
    tokens.insert(tokens.end(), scores_[prompt].begin(), scores_[prompt].end());
    return tokens;
  }

  // `from_start`: the first one is a prompt's first.
  Json Logprobs(const std::vector<engine::TokenOutput>& tokens, bool from_start,
                Choice& choice) const {
    Json names = Json::array();
    Json logprobs = Json::array();
    Json top = Json::array();
    Json offsets = Json::array();
    for (const engine::TokenOutput& token : tokens) {
      offsets.push_back(choice.offset);
      choice.offset += TokenCharacters(model_.tokenizer, token.token);
      names.push_back(TokenName(model_.tokenizer, token.token));
      if (std::exchange(from_start, false)) {
        logprobs.push_back(nullptr);
        top.push_back(nullptr);
        continue;
      }
      logprobs.push_back(FiniteLogprob(token.logprob));
      Json best = Json::object();
      for (const auto& [id, logprob] : token.top_logprobs)
        best[TokenName(model_.tokenizer, id)] = FiniteLogprob(logprob);
      top.push_back(std::move(best));
    }
    return {{"tokens", std::move(names)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(top)},
            {"text_offset", std::move(offsets)}};
  }

  Call call_;
  const ServedModel& model_;
  Usage usage_;
  const EventFrame frame_;
  std::vector<Choice> choices_;
  std::vector<std::vector<engine::TokenOutput>> scores_;  // of prompts
};

}  // namespace

std::unique_ptr<Formatter> MakeCompletionFormatter(const Call& call, const ServedModel& model) {
  return std::make_unique<CompletionFormatter>(call, model);
}

}  // namespace longspan::server
