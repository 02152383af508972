#include "server/chat_format.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/json.h"

namespace longspan::server {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";
constexpr std::string_view kHermesBegin = "<tool_call>";
constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kDeepSeekBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kDeepSeekEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>";
constexpr std::string_view kDeepSeekCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kDeepSeekSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpaces = " \t\r\n";

// How many of the last bytes may be the beginning of `mark`.
size_t PossibleBeginning(std::string_view text, std::string_view mark) {
  for (size_t length = std::min(mark.size() - 1, text.size()); length > 0; --length)
    if (text.ends_with(mark.substr(0, length))) return length;
  return 0;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

struct ParsedCall {
  std::string name;
  std::string arguments;
};

// {"name": ..., "arguments" or "parameters": {...}}
std::optional<ParsedCall> ParseJsonCall(std::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto name = json->find("name");
  if (name == json->end() || !name->is_string()) return std::nullopt;
  auto arguments = json->find("arguments");
  if (arguments == json->end()) arguments = json->find("parameters");
  ParsedCall call{.name = name->get<std::string>(), .arguments = "{}"};
  if (arguments == json->end()) return call;
  call.arguments = arguments->is_string() ? arguments->get<std::string>() : Dump(*arguments);
  return call;
}

// NAME<sep>{...}, or function<sep>NAME and a block of JSON.
std::optional<ParsedCall> ParseDeepSeekCall(std::string_view text) {
  const size_t separator = text.find(kDeepSeekSeparator);
  if (separator == std::string_view::npos) return std::nullopt;
  std::string_view name = Trim(text.substr(0, separator));
  std::string_view arguments = Trim(text.substr(separator + kDeepSeekSeparator.size()));
  if (name == "function") {
    const size_t line = arguments.find('\n');
    if (line == std::string_view::npos) return std::nullopt;
    name = Trim(arguments.substr(0, line));
    arguments = Trim(arguments.substr(line + 1));
    for (const std::string_view fence : {"```json", "```"}) {
      if (!arguments.starts_with(fence)) continue;
      arguments.remove_prefix(fence.size());
      break;
    }
    if (arguments.ends_with("```")) arguments.remove_suffix(3);
    arguments = Trim(arguments);
  }
  const auto json = ParseJson(arguments);
  if (name.empty() || !json.ok() || !json->is_object()) return std::nullopt;
  return ParsedCall{std::string(name), Dump(*json)};
}

}  // namespace

ChatParser::ChatParser(ChatFormat format) : format_(std::move(format)) {
  if (format_.begins_in_reasoning && format_.reasoning) state_ = State::kReasoning;
  may_be_llama_call_ = format_.tools && format_.syntax == ToolSyntax::kLlama;
  held_ = std::exchange(format_.prefix, {});
}

std::vector<ChatPiece> ChatParser::Append(std::string_view text) {
  held_ += text;
  std::vector<ChatPiece> pieces;
  while (Step(/*last=*/false, pieces)) {
  }
  return pieces;
}

std::vector<ChatPiece> ChatParser::Finish() {
  std::vector<ChatPiece> pieces;
  while (Step(/*last=*/true, pieces)) {
  }
  return pieces;
}

bool ChatParser::Step(bool last, std::vector<ChatPiece>& pieces) {
  switch (state_) {
    case State::kBegin:
      return StepBegin(last);
    case State::kReasoning:
      return StepReasoning(last, pieces);
    case State::kAfterReasoning: {
      // The empty lines between reasoning and answer are neither.
      const size_t begin = held_.find_first_not_of("\r\n");
      held_.erase(0, begin);
      if (held_.empty()) return false;
      state_ = State::kContent;
      return true;
    }
    case State::kContent:
      return may_be_llama_call_ ? StepLlama(last, pieces) : StepContent(last, pieces);
    case State::kCall:
      return StepCall(last, pieces);
    case State::kEnd:
      held_.clear();
      return false;
  }
  return false;
}

bool ChatParser::StepBegin(bool last) {
  if (!format_.reasoning) {
    state_ = State::kContent;
    return true;
  }
  const size_t begin = held_.find_first_not_of(kSpaces);
  const std::string_view rest =
      begin == std::string::npos ? std::string_view{} : std::string_view(held_).substr(begin);
  if (rest.starts_with(kThink)) {
    held_.erase(0, begin + kThink.size());
    state_ = State::kReasoning;
    return true;
  }
  if (!last && kThink.starts_with(rest)) return false;
  state_ = State::kContent;
  return true;
}

bool ChatParser::StepReasoning(bool last, std::vector<ChatPiece>& pieces) {
  const size_t end = held_.find(kEndThink);
  if (end != std::string::npos) {
    Emit(ChatPiece::Kind::kReasoning, held_.substr(0, end), pieces);
    held_.erase(0, end + kEndThink.size());
    spaces_.clear();
    state_ = State::kAfterReasoning;
    return true;
  }
  const size_t keep = last ? 0 : PossibleBeginning(held_, kEndThink);
  Emit(ChatPiece::Kind::kReasoning, held_.substr(0, held_.size() - keep), pieces);
  held_.erase(0, held_.size() - keep);
  return false;
}

bool ChatParser::StepContent(bool last, std::vector<ChatPiece>& pieces) {
  if (!format_.tools) {
    Emit(ChatPiece::Kind::kContent, std::exchange(held_, {}), pieces);
    return false;
  }
  const std::string_view mark =
      format_.syntax == ToolSyntax::kDeepSeek ? kDeepSeekBegin : kHermesBegin;
  const size_t begin = held_.find(mark);
  if (begin != std::string::npos) {
    Emit(ChatPiece::Kind::kContent, held_.substr(0, begin), pieces);
    held_.erase(0, begin + mark.size());
    state_ = State::kCall;
    return true;
  }
  const size_t keep = last ? 0 : PossibleBeginning(held_, mark);
  Emit(ChatPiece::Kind::kContent, held_.substr(0, held_.size() - keep), pieces);
  held_.erase(0, held_.size() - keep);
  return false;
}

bool ChatParser::StepCall(bool last, std::vector<ChatPiece>& pieces) {
  const bool deep_seek = format_.syntax == ToolSyntax::kDeepSeek;
  const std::string_view mark = deep_seek ? kDeepSeekCallEnd : kHermesEnd;
  if (deep_seek) {
    const std::string_view rest = Trim(held_);
    if (rest.starts_with(kDeepSeekEnd)) {
      state_ = State::kEnd;
      return true;
    }
  }
  const size_t end = held_.find(mark);
  if (end == std::string::npos) {
    if (!last || held_.empty()) return false;
    // The end of the text may stand for that of the call.
    const std::string rest = std::exchange(held_, {});
    if (!Trim(rest).empty() && !EmitCall(rest, pieces))
      Emit(ChatPiece::Kind::kContent, (deep_seek ? "" : std::string(kHermesBegin)) + rest, pieces);
    return false;
  }
  const std::string body = held_.substr(0, end);
  held_.erase(0, end + mark.size());
  if (!EmitCall(body, pieces))
    Emit(ChatPiece::Kind::kContent,
         deep_seek ? body : std::string(kHermesBegin) + body + std::string(kHermesEnd), pieces);
  if (!deep_seek) state_ = State::kContent;
  if (format_.one_call && calls_ > 0) state_ = State::kEnd;
  return true;
}

bool ChatParser::StepLlama(bool last, std::vector<ChatPiece>& pieces) {
  std::string_view rest = Trim(held_);
  const bool may_grow = rest.empty() || kPythonTag.starts_with(rest);
  if (!last && may_grow) return false;
  if (rest.starts_with(kPythonTag)) rest = Trim(rest.substr(kPythonTag.size()));
  if (!last && (rest.empty() || rest.starts_with('{'))) return false;
  may_be_llama_call_ = false;
  // Several calls are separated by semicolons.
  std::string body(rest);
  bool all = rest.starts_with('{');
  std::vector<ChatPiece> calls;
  for (size_t begin = 0; all && begin < body.size();) {
    size_t end = body.find("};", begin);
    end = end == std::string::npos ? body.size() : end + 1;
    all = EmitCall(std::string_view(body).substr(begin, end - begin), calls);
    begin = end + 1;
  }
  if (all) {
    std::move(calls.begin(), calls.end(), std::back_inserter(pieces));
    held_.clear();
    state_ = State::kEnd;
    return false;
  }
  calls_ = 0;
  // First: spaces that Emit holds back before what may be a call would never come.
  format_.tools = false;
  Emit(ChatPiece::Kind::kContent, std::exchange(held_, {}), pieces);
  return false;
}

void ChatParser::Emit(ChatPiece::Kind kind, std::string text, std::vector<ChatPiece>& pieces) {
  if (text.empty()) return;
  const size_t visible = text.find_last_not_of(kSpaces);
  // Spaces around calls, and before anything else, are the format's; within a text they are its.
  const bool holds = kind == ChatPiece::Kind::kReasoning || format_.tools;
  if (holds) {
    std::string tail = text.substr(visible == std::string::npos ? 0 : visible + 1);
    text.resize(visible == std::string::npos ? 0 : visible + 1);
    if (text.empty()) {
      spaces_ += tail;
      return;
    }
    text.insert(0, std::exchange(spaces_, std::move(tail)));
  }
  pieces.push_back({.kind = kind, .text = std::move(text)});
}

bool ChatParser::EmitCall(std::string_view body, std::vector<ChatPiece>& pieces) {
  std::optional<ParsedCall> call;
  if (format_.syntax == ToolSyntax::kDeepSeek) {
    const size_t begin = body.find(kDeepSeekCall);
    if (begin != std::string_view::npos) body.remove_prefix(begin + kDeepSeekCall.size());
    call = ParseDeepSeekCall(body);
  } else {
    call = ParseJsonCall(Trim(body));
  }
  if (!call) return false;
  spaces_.clear();
  ++calls_;
  pieces.push_back({.kind = ChatPiece::Kind::kCall,
                    .text = std::move(call->arguments),
                    .call_name = std::move(call->name)});
  return true;
}

}  // namespace longspan::server
