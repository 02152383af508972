#include "server/chat_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/tool_marks.h"

namespace longspan::server {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";

struct RegionMark {
  std::string_view mark;
  ToolSyntax syntax;
};

// What may begin calls. DeepSeek's models fall back to the form of the one before.
std::vector<RegionMark> MarksOf(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
      return {{kHermesBegin, ToolSyntax::kHermes}};
    case ToolSyntax::kLlama:
      return {};
    case ToolSyntax::kDeepSeekV3:
    case ToolSyntax::kDeepSeekV31:
    case ToolSyntax::kDeepSeekV32:
      break;
  }
  return {{kDeepSeekBegin, ToolSyntax::kDeepSeekV31}, {kDsmlBegin, ToolSyntax::kDeepSeekV32}};
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
    case State::kAfterReasoning:
      return StepAfterReasoning();
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
  const size_t begin = SkipSpaces(held_, 0);
  const std::string_view rest = std::string_view(held_).substr(begin);
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

// The empty lines between reasoning and answer are neither.
bool ChatParser::StepAfterReasoning() {
  held_.erase(0, std::min(held_.find_first_not_of("\r\n"), held_.size()));
  if (held_.empty()) return false;
  state_ = State::kContent;
  return true;
}

bool ChatParser::StepContent(bool last, std::vector<ChatPiece>& pieces) {
  size_t begin = std::string::npos;
  size_t keep = 0;
  RegionMark found{};
  if (format_.tools) {
    for (const RegionMark& region : MarksOf(format_.syntax)) {
      const size_t place = held_.find(region.mark);
      if (place < begin) {
        begin = place;
        found = region;
      }
      if (!last) keep = std::max(keep, PossibleBeginning(held_, region.mark));
    }
  }
  if (begin != std::string::npos) {
    Emit(ChatPiece::Kind::kContent, held_.substr(0, begin), pieces);
    held_.erase(0, begin + found.mark.size());
    BeginCalls(found.syntax, std::string(found.mark));
    return true;
  }
  Emit(ChatPiece::Kind::kContent, held_.substr(0, held_.size() - keep), pieces);
  held_.erase(0, held_.size() - keep);
  return false;
}

void ChatParser::BeginCalls(ToolSyntax syntax, std::string mark) {
  reader_ = ToolCallReader(syntax);
  mark_ = std::move(mark);
  state_ = State::kCall;
}

bool ChatParser::StepCall(bool last, std::vector<ChatPiece>& pieces) {
  const size_t before = pieces.size();
  const ToolCallReader::Result result = reader_.Read(held_, last, pieces);
  const auto begun =
      std::count_if(pieces.begin() + static_cast<std::ptrdiff_t>(before), pieces.end(),
                    [](const ChatPiece& piece) { return piece.kind == ChatPiece::Kind::kCall; });
  calls_ += static_cast<int>(begun);
  if (begun > 0) {
    mark_.clear();
    spaces_.clear();
  }
  switch (result) {
    case ToolCallReader::Result::kMore:
      return false;
    case ToolCallReader::Result::kCallDone:
      if (format_.one_call) state_ = State::kEnd;
      return true;
    case ToolCallReader::Result::kEnd:
      state_ = State::kContent;
      return !held_.empty();
    case ToolCallReader::Result::kBroken:
      break;
  }
  const size_t bytes = reader_.broken_bytes();
  Emit(ChatPiece::Kind::kContent, std::exchange(mark_, {}) + held_.substr(0, bytes), pieces);
  held_.erase(0, bytes);
  // DeepSeek's regions hold more than one.
  const bool stays =
      format_.syntax != ToolSyntax::kHermes && format_.syntax != ToolSyntax::kLlama && !last;
  if (!stays) state_ = State::kContent;
  return !held_.empty();
}

// The answer is a call if it begins as one.
bool ChatParser::StepLlama(bool last, std::vector<ChatPiece>& pieces) {
  const std::string_view rest = std::string_view(held_).substr(SkipSpaces(held_, 0));
  const bool tagged = rest.starts_with(kPythonTag);
  if (!last && kPythonTag.starts_with(rest)) return false;
  const std::string_view body = tagged ? Trim(rest.substr(kPythonTag.size())) : rest;
  if (!last && body.empty()) return false;
  may_be_llama_call_ = false;
  if (!body.starts_with('{')) {
    // Spaces that Emit holds back before what may be a call would never come.
    format_.tools = false;
    return StepContent(last, pieces);
  }
  const size_t begin = held_.find('{');
  std::string mark = held_.substr(0, begin);
  held_.erase(0, begin);
  BeginCalls(ToolSyntax::kLlama, std::move(mark));
  return true;
}

void ChatParser::Emit(ChatPiece::Kind kind, std::string text, std::vector<ChatPiece>& pieces) {
  if (text.empty()) return;
  // Spaces around calls, and at the end of reasoning, are the format's; within a text they are its.
  if (kind == ChatPiece::Kind::kReasoning || format_.tools) {
    const size_t visible = text.find_last_not_of(kSpaces);
    std::string tail = text.substr(visible == std::string::npos ? 0 : visible + 1);
    text.resize(text.size() - tail.size());
    if (text.empty()) {
      spaces_ += tail;
      return;
    }
    text.insert(0, std::exchange(spaces_, std::move(tail)));
  }
  pieces.push_back({.kind = kind, .text = std::move(text)});
}

}  // namespace longspan::server
