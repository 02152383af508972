// Responses of /v1/chat/completions.
#include "server/chat_parser.h"
#include "server/formatter.h"
#include "server/formatter_parts.h"

namespace longspan::server {
namespace {

// Of one sequence.
struct Choice {
  explicit Choice(const ChatFormat& format) : parser(format) {}

  ChatParser parser;
  std::string content;
  std::string reasoning;
  Json calls = Json::array();
  Json logprobs = Json::array();
  std::optional<Finish> finish;
  int call_count = 0;  // that have begun
  bool has_role = false;
  bool has_content = false;
};

class ChatFormatter : public Formatter {
 public:
  ChatFormatter(const Call& call, const ServedModel& model)
      : call_(call),
        model_(model),
        usage_(call),
        frame_(Head()),
        choices_(call.sequences(), Choice(call.chat)) {}

  void OnPrefill(const PrefillEvent& event, std::string& out) override {
    Json json = Head();
    json["choices"] = Json::array();
    json["prompt_progress"] = ProgressJson(event);
    json["prompt_progress"]["index"] = event.sequence;
    usage_.AddTo(call_, json);
    AppendEvent(json, out);
  }

  void OnToken(TokenEvent event, std::string& out) override {
    Choice& choice = choices_[event.sequence];
    usage_.OnToken(event);
    if (event.finish) usage_.OnFinish(event);
    if (event.token && choice.parser.in_reasoning()) usage_.AddReasoning(1);
    std::vector<ChatPiece> pieces = choice.parser.Append(event.text);
    if (event.finish)
      for (ChatPiece& piece : choice.parser.Finish()) pieces.push_back(std::move(piece));
    Json logprobs;
    if (call_.logprobs && event.token && event.in_text) logprobs = Logprob(*event.token);
    if (!call_.stream) return Collect(event, std::move(pieces), std::move(logprobs));

    if (!choice.has_role) {
      // A first event of its own, as clients expect it.
      choice.has_role = true;
      AppendChunk(event.sequence, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr, out);
    }
    for (ChatPiece& piece : pieces) {
      AppendChunk(event.sequence, Delta(event.sequence, std::move(piece)),
                  std::exchange(logprobs, nullptr), nullptr, out);
    }
    if (!logprobs.is_null())
      AppendChunk(event.sequence, Json::object(), std::move(logprobs), nullptr, out);
    if (event.finish) {
      AppendChunk(event.sequence, Json::object(), nullptr, &*event.finish, out);
    }
  }

  void OnEnd(std::string& out) override { AppendStreamEnd(call_, usage_, Head(), out); }

  Json Body() override {
    Json json = Head();
    json["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      Json message = {{"role", "assistant"}, {"content", nullptr}};
      if (choice.has_content || choice.calls.empty()) message["content"] = choice.content;
      if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
      if (!choice.calls.empty()) message["tool_calls"] = std::move(choice.calls);
      Json entry = {{"index", i}, {"message", std::move(message)}, {"logprobs", nullptr}};
      if (call_.logprobs) entry["logprobs"] = {{"content", std::move(choice.logprobs)}};
      AddFinish(choice, choice.finish ? &*choice.finish : nullptr, entry);
      json["choices"].push_back(std::move(entry));
    }
    json["usage"] = usage_.ToJson();
    return json;
  }

 private:
  Json Head() const {
    return {{"id", call_.id},
            {"object", call_.stream ? "chat.completion.chunk" : "chat.completion"},
            {"created", call_.created},
            {"model", model_.name}};
  }

  static void AddFinish(const Choice& choice, const Finish* finish, Json& entry) {
    entry["finish_reason"] = nullptr;
    if (finish == nullptr) return;
    const bool calls = choice.parser.has_calls() && finish->reason == engine::FinishReason::kStop;
    entry["finish_reason"] = calls ? "tool_calls" : engine::ReasonName(finish->reason);
    entry["matched_stop"] = MatchedStop(*finish);
  }

  void AppendChunk(size_t index, Json delta, Json logprobs, const Finish* finish,
                   std::string& out) const {
    Json entry = {{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
    if (!logprobs.is_null()) entry["logprobs"] = {{"content", Json::array({std::move(logprobs)})}};
    AddFinish(choices_[index], finish, entry);
    frame_.Append(entry, call_, usage_, out);
  }

  // The call that begins; its arguments follow.
  Json CallJson(size_t sequence, std::string name) {
    const int index = choices_[sequence].call_count++;
    return {{"index", index},
            {"id", fmt::format("call_{}_{}_{}", call_.id, sequence, index)},
            {"type", "function"},
            {"function", {{"name", std::move(name)}, {"arguments", ""}}}};
  }

  Json Delta(size_t sequence, ChatPiece piece) {
    switch (piece.kind) {
      case ChatPiece::Kind::kReasoning:
        return {{"reasoning_content", std::move(piece.text)}};
      case ChatPiece::Kind::kCall:
        return {{"tool_calls", Json::array({CallJson(sequence, std::move(piece.text))})}};
      case ChatPiece::Kind::kArguments: {
        Json part = {{"index", choices_[sequence].call_count - 1},
                     {"function", {{"arguments", std::move(piece.text)}}}};
        return {{"tool_calls", Json::array({std::move(part)})}};
      }
      case ChatPiece::Kind::kContent:
        break;
    }
    return {{"content", std::move(piece.text)}};
  }

  void Collect(const TokenEvent& event, std::vector<ChatPiece> pieces, Json logprobs) {
    Choice& choice = choices_[event.sequence];
    if (!logprobs.is_null()) choice.logprobs.push_back(std::move(logprobs));
    if (event.finish) choice.finish = event.finish;
    for (ChatPiece& piece : pieces) {
      switch (piece.kind) {
        case ChatPiece::Kind::kReasoning:
          choice.reasoning += piece.text;
          break;
        case ChatPiece::Kind::kCall: {
          Json call = CallJson(event.sequence, std::move(piece.text));
          call.erase("index");
          choice.calls.push_back(std::move(call));
          break;
        }
        case ChatPiece::Kind::kArguments:
          choice.calls.back()["function"]["arguments"].get_ref<std::string&>() += piece.text;
          break;
        case ChatPiece::Kind::kContent:
          choice.has_content = true;
          choice.content += piece.text;
          break;
      }
    }
  }

  Json Logprob(const engine::TokenOutput& token) const {
    const auto entry = [&](int32_t id, float logprob) -> Json {
      return {{"token", TokenName(model_.tokenizer, id)},
              {"logprob", FiniteLogprob(logprob)},
              {"bytes", TokenBytesJson(model_.tokenizer, id)}};
    };
    Json json = entry(token.token, token.logprob);
    json["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : token.top_logprobs)
      json["top_logprobs"].push_back(entry(id, logprob));
    return json;
  }

  Call call_;
  const ServedModel& model_;
  Usage usage_;
  const EventFrame frame_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<Formatter> MakeChatFormatter(const Call& call, const ServedModel& model) {
  return std::make_unique<ChatFormatter>(call, model);
}

}  // namespace longspan::server
