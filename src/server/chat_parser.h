// Tells reasoning, answer and calls of tools apart in the text of a model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/chat_format.h"
#include "server/tool_call_reader.h"

namespace longspan::server {

// Cuts a text that comes piece by piece; what comes out, joined, does not depend on how it was cut
// before. A plain value.
class ChatParser {
 public:
  explicit ChatParser(ChatFormat format);

  // What is certain now.
  std::vector<ChatPiece> Append(std::string_view text);
  // The rest. What cannot be read as a call is content.
  std::vector<ChatPiece> Finish();
  bool has_calls() const { return calls_ > 0; }
  bool in_reasoning() const { return state_ == State::kReasoning; }

 private:
  enum class State { kBegin, kReasoning, kAfterReasoning, kContent, kCall, kEnd };

  // One step of work on the held text; false where it needs more.
  bool Step(bool last, std::vector<ChatPiece>& pieces);
  bool StepBegin(bool last);
  bool StepReasoning(bool last, std::vector<ChatPiece>& pieces);
  bool StepAfterReasoning();
  bool StepContent(bool last, std::vector<ChatPiece>& pieces);
  bool StepCall(bool last, std::vector<ChatPiece>& pieces);
  bool StepLlama(bool last, std::vector<ChatPiece>& pieces);
  void BeginCalls(ToolSyntax syntax, std::string mark);
  void Emit(ChatPiece::Kind kind, std::string text, std::vector<ChatPiece>& pieces);

  ChatFormat format_;
  State state_ = State::kBegin;
  std::string held_;
  std::string spaces_;  // before what may be a call: content only if something follows
  ToolCallReader reader_{ToolSyntax::kHermes};
  std::string mark_;  // of the region that is read, until its first call
  bool may_be_llama_call_ = false;
  int calls_ = 0;
};

}  // namespace longspan::server
