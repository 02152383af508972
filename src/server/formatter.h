// From the events of a generation to the bytes of a response.
#pragma once

#include <memory>
#include <string>

#include "server/call.h"
#include "server/generation.h"
#include "server/json.h"

namespace longspan::server {

// Of one call; on the I/O thread. With call.stream it appends server-sent events to `out` (each
// "data: JSON" and an empty line), else it collects for Body.
class Formatter {
 public:
  virtual ~Formatter() = default;
  // The request was accepted; before all others.
  virtual void OnAccepted(std::string& /*out*/) {}
  virtual void OnPrefill(const PrefillEvent& /*event*/, std::string& /*out*/) {}
  // A token of a prompt; before the tokens of its sequences.
  virtual void OnScore(const ScoreEvent& /*event*/) {}
  virtual void OnToken(TokenEvent event, std::string& out) = 0;
  // All sequences have ended.
  virtual void OnEnd(std::string& /*out*/) {}
  // An error after the response has begun.
  virtual void OnError(const Json& error, std::string& out);
  virtual Json Body() = 0;
  // What an idle stream hears to stay alive.
  virtual void OnSilence(std::string& out) { out += ": waiting\n\n"; }
};

std::unique_ptr<Formatter> MakeCompletionFormatter(const Call& call, const ServedModel& model);
std::unique_ptr<Formatter> MakeChatFormatter(const Call& call, const ServedModel& model);
std::unique_ptr<Formatter> MakeNativeFormatter(const Call& call, const ServedModel& model);

}  // namespace longspan::server
