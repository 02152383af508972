// Responses of /v1/completions.
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

int64_t Characters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

class CompletionFormatter : public Formatter {
 public:
  CompletionFormatter(const Call& call, const ServedModel& model)
      : call_(call), model_(model), usage_(call), choices_(call.sequences()) {}

  void OnPrefill(const PrefillEvent& event, std::string& out) override {
    Json json = Head();
    json["choices"] = Json::array();
    json["prompt_progress"] = ProgressJson(event);
    json["prompt_progress"]["index"] = event.sequence;
    AppendEvent(json, out);
  }

  void OnToken(TokenEvent event, std::string& out) override {
    Choice& choice = choices_[event.sequence];
    usage_.OnToken(event);
    if (event.finish) {
      usage_.OnFinish(event);
      choice.finish = event.finish;
    }
    std::string text = std::move(event.text);
    if (call_.echo && !choice.echoed) {
      choice.echoed = true;
      text.insert(0, call_.echo_text[event.sequence / call_.choices()]);
    }
    if (!call_.stream) {
      choice.text += text;
      if (call_.logprobs && event.token && event.in_text)
        choice.tokens.push_back(std::move(*event.token));
      return;
    }
    const bool has_logprobs = call_.logprobs && event.token && event.in_text;
    if (text.empty() && !event.finish && !has_logprobs) return;
    Json entry = {{"index", event.sequence}, {"text", std::move(text)}, {"logprobs", nullptr}};
    if (has_logprobs) entry["logprobs"] = Logprobs({*event.token}, choice);
    AddFinish(event.finish, entry);
    Json json = Head();
    json["choices"] = Json::array({std::move(entry)});
    if (call_.continuous_usage) json["usage"] = usage_.ToJson();
    AppendEvent(json, out);
  }

  void OnEnd(std::string& out) override {
    if (call_.include_usage) {
      Json json = Head();
      json["choices"] = Json::array();
      json["usage"] = usage_.ToJson();
      AppendEvent(json, out);
    }
    AppendDone(out);
  }

  Json Body() override {
    Json json = Head();
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      Json entry = {{"index", i}, {"text", std::move(choice.text)}, {"logprobs", nullptr}};
      if (call_.logprobs) entry["logprobs"] = Logprobs(choice.tokens, choice);
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
    entry["finish_reason"] = ReasonName(finish->reason);
    entry["matched_stop"] = MatchedStop(*finish);
  }

  Json Logprobs(const std::vector<engine::TokenOutput>& tokens, Choice& choice) const {
    Json names = Json::array();
    Json logprobs = Json::array();
    Json top = Json::array();
    Json offsets = Json::array();
    for (const engine::TokenOutput& token : tokens) {
      std::string name = TokenName(model_.tokenizer, token.token);
      offsets.push_back(choice.offset);
      choice.offset += Characters(name);
      logprobs.push_back(FiniteLogprob(token.logprob));
      Json best = Json::object();
      for (const auto& [id, logprob] : token.top_logprobs)
        best[TokenName(model_.tokenizer, id)] = FiniteLogprob(logprob);
      top.push_back(std::move(best));
      names.push_back(std::move(name));
    }
    return {{"tokens", std::move(names)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(top)},
            {"text_offset", std::move(offsets)}};
  }

  Call call_;
  const ServedModel& model_;
  Usage usage_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Formatter> MakeCompletionFormatter(const Call& call, const ServedModel& model) {
  return std::make_unique<CompletionFormatter>(call, model);
}

}  // namespace longspan::server
