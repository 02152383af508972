#include "server/tool_call_reader.h"

#include <optional>
#include <utility>

#include "server/json.h"
#include "server/tool_marks.h"

namespace longspan::server {
namespace {

using Result = ToolCallReader::Result;
using Kind = ChatPiece::Kind;

// The string literal at `at`, which is moved behind it. Nothing where it does not end.
std::optional<std::string> TakeString(std::string_view text, size_t& at) {
  for (size_t end = at + 1; end < text.size(); ++end) {
    if (text[end] == '\\') {
      ++end;
    } else if (text[end] == '"') {
      const auto value = ParseJson(text.substr(at, end + 1 - at));
      at = end + 1;
      return value.ok() && value->is_string() ? value->get<std::string>() : std::string();
    }
  }
  return std::nullopt;
}

struct Header {
  enum class Found {
    kMore,
    kUsual,  // the arguments begin at `arguments`
    kOther,  // can only be read as a whole
  };
  Found found = Found::kMore;
  std::string name;
  size_t arguments = 0;
};

// {"name": "...", "arguments" or "parameters": {, with other strings between.
Header ScanHeader(std::string_view text) {
  const auto other = [] { return Header{.found = Header::Found::kOther, .name = {}}; };
  Header header;
  size_t at = SkipSpaces(text, 0);
  const auto is = [&](char wanted) { return at < text.size() && text[at] == wanted; };
  const auto more = [&] { return at >= text.size(); };
  for (char before = '{';; before = ',') {
    if (more()) return {};
    if (!is(before)) return other();
    at = SkipSpaces(text, at + 1);
    if (more()) return {};
    if (!is('"')) return other();
    const auto key = TakeString(text, at);
    if (!key) return {};
    at = SkipSpaces(text, at);
    if (more()) return {};
    if (!is(':')) return other();
    at = SkipSpaces(text, at + 1);
    if (more()) return {};
    if (*key == "arguments" || *key == "parameters") {
      if (header.name.empty() || !is('{')) return other();
      header.found = Header::Found::kUsual;
      header.arguments = at;
      return header;
    }
    if (!is('"')) return other();
    auto value = TakeString(text, at);
    if (!value) return {};
    if (*key == "name") header.name = std::move(*value);
    at = SkipSpaces(text, at);
  }
}

struct ParsedCall {
  std::string name;
  std::string arguments = "{}";
};

// {"name": ..., "arguments" or "parameters": {...}} in any order.
std::optional<ParsedCall> ParseJsonCall(std::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto name = json->find("name");
  if (name == json->end() || !name->is_string()) return std::nullopt;
  ParsedCall call{.name = name->get<std::string>()};
  auto arguments = json->find("arguments");
  if (arguments == json->end()) arguments = json->find("parameters");
  if (arguments == json->end() || arguments->is_null()) return call;
  call.arguments = arguments->is_string() ? arguments->get<std::string>() : Dump(*arguments);
  return call;
}

// What is longer before its arguments is read as a whole.
constexpr size_t kLongestHeader = 4096;

bool MayBecome(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

}  // namespace

size_t JsonSpan::Take(std::string_view text) {
  size_t taken = 0;
  for (; taken < text.size() && !done_; ++taken) {
    const char c = text[taken];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      done_ = --depth_ <= 0;
    }
  }
  return taken;
}

Result ToolCallReader::Broken(size_t bytes) {
  broken_bytes_ = bytes;
  waits_for_all_ = false;
  searched_ = 0;
  state_ = State::kHeader;
  return Result::kBroken;
}

Result ToolCallReader::Begin(std::string name, size_t bytes, std::string& held,
                             std::vector<ChatPiece>& pieces) {
  held.erase(0, bytes);
  pieces.push_back({.kind = Kind::kCall, .text = std::move(name)});
  span_ = {};
  has_parameters_ = false;
  searched_ = 0;
  state_ = State::kArguments;
  return ReadArguments(held, /*last=*/false, pieces);
}

Result ToolCallReader::Read(std::string& held, bool last, std::vector<ChatPiece>& pieces) {
  switch (state_) {
    case State::kHeader:
      return ReadHeader(held, last, pieces);
    case State::kArguments:
      return ReadArguments(held, last, pieces);
    case State::kTail:
      return ReadTail(held, last);
  }
  return Result::kEnd;
}

Result ToolCallReader::ReadHeader(std::string& held, bool last, std::vector<ChatPiece>& pieces) {
  switch (syntax_) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kLlama:
      return ReadJsonHeader(held, last, pieces);
    case ToolSyntax::kDeepSeekV3:
    case ToolSyntax::kDeepSeekV31:
      return ReadDeepSeekHeader(held, last, pieces);
    case ToolSyntax::kDeepSeekV32:
      return ReadInvoke(held, last, pieces);
  }
  return Result::kEnd;
}

Result ToolCallReader::ReadJsonHeader(std::string& held, bool last,
                                      std::vector<ChatPiece>& pieces) {
  if (!waits_for_all_) {
    Header header = ScanHeader(held);
    if (header.found == Header::Found::kUsual)
      return Begin(std::move(header.name), header.arguments, held, pieces);
    waits_for_all_ = header.found == Header::Found::kOther || last ||
                     held.size() > kLongestHeader || held.find(kHermesEnd) != std::string::npos;
    if (!waits_for_all_) return Result::kMore;
    span_ = {};
    searched_ = 0;
  }
  return ReadWholeJson(held, last, pieces);
}

// Where the members come in another order, or the arguments as a text.
Result ToolCallReader::ReadWholeJson(std::string& held, bool last, std::vector<ChatPiece>& pieces) {
  size_t end = 0;
  if (syntax_ == ToolSyntax::kHermes) {
    end = held.find(kHermesEnd, searched_ - std::min(searched_, kHermesEnd.size()));
    searched_ = held.size();
    if (end == std::string::npos && !last) return Result::kMore;
    end = std::min(end, held.size());
  } else {
    searched_ += span_.Take(std::string_view(held).substr(searched_));
    end = searched_;
    if (!span_.done() && !last) return Result::kMore;
  }
  auto call = ParseJsonCall(Trim(std::string_view(held).substr(0, end)));
  if (!call) {
    const bool marked = syntax_ == ToolSyntax::kHermes && end < held.size();
    return Broken(marked ? end + kHermesEnd.size() : held.size());
  }
  held.erase(0, end);
  waits_for_all_ = false;
  pieces.push_back({.kind = Kind::kCall, .text = std::move(call->name)});
  pieces.push_back({.kind = Kind::kArguments, .text = std::move(call->arguments)});
  // The object's own end was taken: for Llama's tail it is put back.
  if (syntax_ == ToolSyntax::kLlama) held.insert(held.begin(), '}');
  state_ = State::kTail;
  return Result::kCallDone;
}

// NAME<sep>{...}, or function<sep>NAME and a block of JSON.
Result ToolCallReader::ReadDeepSeekHeader(std::string& held, bool last,
                                          std::vector<ChatPiece>& pieces) {
  const std::string_view text = held;
  const size_t begin = SkipSpaces(text, 0);
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(kDeepSeekEnd)) {
    held.erase(0, begin + kDeepSeekEnd.size());
    return Result::kEnd;
  }
  const auto more = [&] {
    if (!last) return Result::kMore;
    return rest.empty() ? Result::kEnd : Broken(held.size());
  };
  const size_t call_end = text.find(kDeepSeekCallEnd);
  const auto broken = [&] {
    if (call_end == std::string_view::npos) return more();
    return Broken(call_end + kDeepSeekCallEnd.size());
  };
  if (MayBecome(rest, kDeepSeekCall) || MayBecome(rest, kDeepSeekEnd)) return more();
  if (!rest.starts_with(kDeepSeekCall)) return broken();
  const size_t name_begin = begin + kDeepSeekCall.size();
  const size_t separator = text.find(kDeepSeekSeparator, name_begin);
  if (separator == std::string_view::npos) return broken();
  std::string_view name = Trim(text.substr(name_begin, separator - name_begin));
  size_t at = separator + kDeepSeekSeparator.size();
  if (name == "function" && text.find('{', at) != SkipSpaces(text, at)) {
    const size_t line = text.find('\n', at);
    if (line == std::string_view::npos) return broken();
    name = Trim(text.substr(at, line - at));
    at = SkipSpaces(text, line);
    constexpr std::string_view kFence = "```json";
    if (MayBecome(text.substr(at), kFence)) return broken();
    if (text.substr(at).starts_with(kFence)) {
      at += kFence.size();
    } else if (text.substr(at).starts_with("```")) {
      at += 3;
    }
  }
  at = SkipSpaces(text, at);
  if (at >= text.size()) return more();
  if (text[at] != '{' || name.empty()) return broken();
  return Begin(std::string(name), at, held, pieces);
}

Result ToolCallReader::ReadInvoke(std::string& held, bool last, std::vector<ChatPiece>& pieces) {
  const std::string_view text = held;
  const size_t begin = SkipSpaces(text, 0);
  const std::string_view rest = text.substr(begin);
  if (rest.starts_with(kDsmlEnd)) {
    held.erase(0, begin + kDsmlEnd.size());
    return Result::kEnd;
  }
  const size_t quote = text.find("\">", begin + kDsmlInvoke.size());
  const bool may_grow = MayBecome(rest, kDsmlInvoke) || MayBecome(rest, kDsmlEnd) ||
                        (rest.starts_with(kDsmlInvoke) && quote == std::string_view::npos);
  if (may_grow && !last) return Result::kMore;
  if (rest.empty()) return Result::kEnd;
  if (may_grow || !rest.starts_with(kDsmlInvoke)) return Broken(held.size());
  const size_t name = begin + kDsmlInvoke.size();
  return Begin(held.substr(name, quote - name), quote + 2, held, pieces);
}

Result ToolCallReader::ReadArguments(std::string& held, bool last, std::vector<ChatPiece>& pieces) {
  if (syntax_ == ToolSyntax::kDeepSeekV32) return ReadParameters(held, last, pieces);
  const size_t taken = span_.Take(held);
  if (taken > 0) pieces.push_back({.kind = Kind::kArguments, .text = held.substr(0, taken)});
  held.erase(0, taken);
  if (!span_.done()) return last ? Result::kEnd : Result::kMore;
  state_ = State::kTail;
  return Result::kCallDone;
}

// <parameter name="KEY" string="true">VALUE</parameter> until the invocation ends.
Result ToolCallReader::ReadParameters(std::string& held, bool last,
                                      std::vector<ChatPiece>& pieces) {
  constexpr std::string_view kTextValue = "\" string=\"true\">";
  constexpr std::string_view kJsonValue = "\" string=\"false\">";
  const auto add = [&](std::string text) {
    pieces.push_back({.kind = Kind::kArguments, .text = std::move(text)});
  };
  const auto end = [&] {
    add(has_parameters_ ? "}" : "{}");
    state_ = State::kHeader;
    return Result::kCallDone;
  };
  while (true) {
    const std::string_view text = held;
    const size_t begin = SkipSpaces(text, 0);
    if (text.substr(begin).starts_with(kDsmlInvokeEnd)) {
      held.erase(0, begin + kDsmlInvokeEnd.size());
      return end();
    }
    const size_t key_begin = begin + kDsmlParameter.size();
    const size_t value_end =
        text.find(kDsmlParameterEnd, searched_ - std::min(searched_, kDsmlParameterEnd.size()));
    if (value_end == std::string_view::npos) {
      searched_ = held.size();
      if (!last) return Result::kMore;
      // The end of the text may stand for that of the call.
      if (begin == text.size()) return end();
      return Result::kEnd;
    }
    const std::string_view whole = text.substr(0, value_end);
    size_t key_end = whole.find(kTextValue, begin);
    const bool is_text = key_end != std::string_view::npos;
    if (!is_text) key_end = whole.find(kJsonValue, begin);
    if (key_end != std::string_view::npos && whole.substr(begin).starts_with(kDsmlParameter)) {
      const size_t value = key_end + (is_text ? kTextValue : kJsonValue).size();
      const std::string_view raw = whole.substr(value);
      const auto parsed = is_text ? base::Result<Json>(Json(std::string(raw))) : ParseJson(raw);
      add((std::exchange(has_parameters_, true) ? ", " : "{") +
          Dump(Json(std::string(whole.substr(key_begin, key_end - key_begin)))) + ": " +
          Dump(parsed.ok() ? *parsed : Json(std::string(raw))));
    }
    held.erase(0, value_end + kDsmlParameterEnd.size());
    searched_ = 0;
  }
}

Result ToolCallReader::ReadTail(std::string& held, bool last) {
  if (syntax_ == ToolSyntax::kLlama) {
    // The object's own end, and perhaps another call.
    size_t at = SkipSpaces(held, 0);
    if (at < held.size() && held[at] == '}') at = SkipSpaces(held, at + 1);
    if (at < held.size() && (held[at] == ';' || held[at] == ',')) at = SkipSpaces(held, at + 1);
    if (at >= held.size() && !last) return Result::kMore;
    held.erase(0, at);
    if (held.empty()) return Result::kEnd;
    state_ = State::kHeader;
    return held[0] == '{' ? Result::kCallDone : Result::kEnd;
  }
  const std::string_view mark = syntax_ == ToolSyntax::kHermes ? kHermesEnd : kDeepSeekCallEnd;
  const size_t end = held.find(mark);
  if (end == std::string::npos && !last) return Result::kMore;
  // The end of the text stands for that of the call.
  held.erase(0, end == std::string::npos ? end : end + mark.size());
  state_ = State::kHeader;
  return syntax_ == ToolSyntax::kHermes ? Result::kEnd : Result::kCallDone;
}

}  // namespace longspan::server
