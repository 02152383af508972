#include <string>
#include <vector>

#include "base/check.h"
#include "server/formatter.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/fuzz/targets/served_tiny.h"

namespace longspan::testing {
namespace {

using server::Call;
using server::Formatter;
using server::Json;
using server::TokenEvent;

enum class Endpoint { kCompletions, kChat, kNative };

struct Answer {
  std::string text;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
  std::string finish;

  bool operator==(const Answer&) const = default;
};

std::unique_ptr<Formatter> Make(Endpoint endpoint, const Call& call) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return server::MakeCompletionFormatter(call, ServedTiny());
    case Endpoint::kChat:
      return server::MakeChatFormatter(call, ServedTiny());
    case Endpoint::kNative:
      break;
  }
  return server::MakeNativeFormatter(call, ServedTiny());
}

void AddText(const Json& object, const char* member, std::string& text) {
  const auto found = object.find(member);
  if (found != object.end() && found->is_string()) text += found->get<std::string>();
}

void AddCalls(const Json& object, Answer& answer) {
  const auto found = object.find("tool_calls");
  if (found == object.end()) return;
  for (const Json& call : *found) {
    const Json& function = call.at("function");
    const bool goes_on = call.contains("index") && call.at("index") < answer.calls.size();
    if (!goes_on) answer.calls.emplace_back(function.at("name"), "");
    answer.calls.back().second += function.at("arguments").get<std::string>();
  }
}

// One event or body; `delta` is the member of a choice that holds what is new.
void Add(Endpoint endpoint, const Json& json, const char* delta, Answer& answer) {
  if (endpoint == Endpoint::kNative) {
    answer.text = json.at("text");
    const Json& reason = json.at("meta_info").at("finish_reason");
    if (!reason.is_null()) answer.finish += reason.at("type").get<std::string>();
    return;
  }
  for (const Json& choice : json.at("choices")) {
    if (endpoint == Endpoint::kCompletions) {
      AddText(choice, "text", answer.text);
    } else {
      AddText(choice.at(delta), "content", answer.text);
      AddText(choice.at(delta), "reasoning_content", answer.reasoning);
      AddCalls(choice.at(delta), answer);
    }
    AddText(choice, "finish_reason", answer.finish);
  }
}

// As a client reads it.
Answer ReadStream(Endpoint endpoint, std::string_view stream) {
  Answer answer;
  constexpr std::string_view kData = "data: ";
  bool done = false;
  while (!stream.empty()) {
    LONGSPAN_CHECK(!done, "an event behind the last one");
    LONGSPAN_CHECK(stream.starts_with(kData), "no event begins here: {}", stream);
    const size_t end = stream.find("\n\n");
    LONGSPAN_CHECK(end != std::string_view::npos, "an event without an end");
    const std::string_view data = stream.substr(kData.size(), end - kData.size());
    LONGSPAN_CHECK(data.find('\n') == std::string_view::npos, "an event of several lines");
    stream.remove_prefix(end + 2);
    done = data == "[DONE]";
    if (done) continue;
    const auto json = server::ParseJson(data);
    LONGSPAN_CHECK(json.ok(), "{}: {}", json.status().message(), data);
    Add(endpoint, *json, "delta", answer);
  }
  LONGSPAN_CHECK(done, "a stream without [DONE]");
  return answer;
}

TokenEvent Event(std::string text, int32_t id) {
  TokenEvent event{.text = std::move(text)};
  event.token = engine::TokenOutput{.token = id, .logprob = -0.5F, .top_logprobs = {{id, -0.5F}}};
  return event;
}

TokenEvent LastEvent(engine::FinishReason reason) {
  TokenEvent event;
  event.finish = server::Finish{.reason = reason};
  return event;
}

}  // namespace

void FuzzSse(FuzzInput input) {
  if (input.size() < 2) return;
  const auto endpoint = static_cast<Endpoint>(input[0] % 3);
  const unsigned options = input[1];
  Call call{.id = "id", .prompt_tokens = {1}};
  call.generation.prompts = {{1}};
  call.logprobs = (options & 1U) != 0;
  call.include_usage = (options & 2U) != 0;
  call.chat = {.tools = (options & 4U) != 0,
               .syntax = static_cast<server::ToolSyntax>((options >> 3) % 3),
               .one_call = (options & 32U) != 0,
               .reasoning = (options & 64U) == 0,
               .begins_in_reasoning = (options & 128U) != 0};
  const auto reason = input[0] >= 128 ? engine::FinishReason::kLength : engine::FinishReason::kStop;
  // What detokenizers give is whole characters; what is no UTF-8 becomes that here.
  const auto clean = [](std::string_view bytes) {
    return server::ParseJson(server::Dump(Json(bytes))).value().get<std::string>();
  };

  call.stream = true;
  const auto streaming = Make(endpoint, call);
  std::string stream;
  std::string whole;
  streaming->OnAccepted(stream);
  for (std::string_view rest = AsText(input.subspan(2)); !rest.empty();) {
    const size_t cut = std::min(rest.find('\0'), rest.size());
    std::string piece = clean(rest.substr(0, cut));
    rest.remove_prefix(std::min(cut + 1, rest.size()));
    whole += piece;
    streaming->OnToken(Event(std::move(piece), static_cast<int32_t>(cut)), stream);
  }
  streaming->OnToken(LastEvent(reason), stream);
  streaming->OnEnd(stream);

  call.stream = false;
  const auto collecting = Make(endpoint, call);
  std::string nothing;
  collecting->OnAccepted(nothing);
  collecting->OnToken(Event(whole, 5), nothing);
  collecting->OnToken(LastEvent(reason), nothing);
  LONGSPAN_CHECK(nothing.empty(), "a stream where none was asked for");
  Answer expected;
  const auto body = server::ParseJson(server::Dump(collecting->Body()));
  LONGSPAN_CHECK(body.ok(), "{}", body.status().message());
  Add(endpoint, *body, "message", expected);
  const Answer got = ReadStream(endpoint, stream);
  LONGSPAN_CHECK(got == expected, "the stream has '{}' '{}' {}, the body '{}' '{}' {}", got.text,
                 got.reasoning, got.finish, expected.text, expected.reasoning, expected.finish);
  if (endpoint != Endpoint::kChat) LONGSPAN_CHECK(got.text == whole, "a text of its own");
}

}  // namespace longspan::testing
