#include "server/formatter_parts.h"

#include <algorithm>
#include <cmath>

#include "server/formatter.h"

namespace longspan::server {

void AppendEvent(const Json& json, std::string& out) {
  out += "data: ";
  out += Dump(json);
  out += "\n\n";
}

void AppendDone(std::string& out) { out += "data: [DONE]\n\n"; }

void Formatter::OnError(const Json& error, std::string& out) {
  AppendEvent({{"error", error}}, out);
  AppendDone(out);
}

Usage::Usage(const Call& call) : choices_(call.choices()) {
  for (const int64_t tokens : call.prompt_tokens) prompt_ += tokens;
}

void Usage::OnToken(const TokenEvent& event) {
  if (event.token) ++completion_;
}

void Usage::OnFinish(const TokenEvent& event) {
  if (event.sequence % choices_ == 0) cached_ += event.finish->info.cached_tokens;
}

void Usage::AddTo(const Call& call, Json& event) const {
  if (call.continuous_usage) {
    event["usage"] = ToJson();
  } else if (call.include_usage) {
    event["usage"] = nullptr;
  }
}

EventFrame::EventFrame(const Json& head) : begin_("data: " + Dump(head)) {
  begin_.back() = ',';  // in place of the brace
  begin_ += "\"choices\":[";
}

void EventFrame::Append(const Json& choice, const Call& call, const Usage& usage,
                        std::string& out) const {
  out += begin_;
  out += Dump(choice);
  out += ']';
  if (call.continuous_usage) {
    out += ",\"usage\":";
    out += Dump(usage.ToJson());
  } else if (call.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

Json Usage::ToJson() const {
  Json json = {{"prompt_tokens", prompt_},
               {"completion_tokens", completion_},
               {"total_tokens", prompt_ + completion_},
               {"prompt_tokens_details", {{"cached_tokens", cached_}}}};
  if (reasoning_ > 0) json["completion_tokens_details"] = {{"reasoning_tokens", reasoning_}};
  return json;
}

namespace {

bool IsKnown(const text::Tokenizer* tokenizer, int32_t token) {
  return tokenizer != nullptr && token >= 0 && token < tokenizer->vocab_size();
}

}  // namespace

std::string TokenName(const text::Tokenizer* tokenizer, int32_t token) {
  if (!IsKnown(tokenizer, token)) return fmt::format("token_id:{}", token);
  const std::string_view bytes = tokenizer->TokenBytes(token);
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

int64_t TokenCharacters(const text::Tokenizer* tokenizer, int32_t token) {
  if (!IsKnown(tokenizer, token)) return std::ssize(TokenName(tokenizer, token));
  const std::string_view bytes = tokenizer->TokenBytes(token);
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Json TokenBytesJson(const text::Tokenizer* tokenizer, int32_t token) {
  if (!IsKnown(tokenizer, token)) return nullptr;
  Json bytes = Json::array();
  for (const char c : tokenizer->TokenBytes(token)) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json MatchedStop(const Finish& finish) {
  if (finish.stop_string) return *finish.stop_string;
  if (finish.stop_token) return *finish.stop_token;
  return nullptr;
}

Json ProgressJson(const PrefillEvent& event) {
  Json json = {{"total", event.total},
               {"cached", event.cached},
               {"processed", event.done},
               {"time_ms", std::round(event.seconds * 1e3)},
               {"time_left_ms", nullptr}};
  if (event.seconds_left) json["time_left_ms"] = std::round(*event.seconds_left * 1e3);
  return json;
}

double FiniteLogprob(float logprob) {
  constexpr float kLowest = -9999;
  return std::isfinite(logprob) ? std::max(logprob, kLowest) : kLowest;
}

void AppendStreamEnd(const Call& call, const Usage& usage, Json head, std::string& out) {
  if (call.include_usage) {
    head["choices"] = Json::array();
    head["usage"] = usage.ToJson();
    AppendEvent(head, out);
  }
  AppendDone(out);
}

}  // namespace longspan::server
