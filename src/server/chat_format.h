// How a model writes reasoning and calls of tools into its text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longspan::server {

enum class ToolSyntax {
  // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen, Hermes.
  kHermes,
  // <｜tool▁calls▁begin｜>, then calls
  // <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
  // (V3.1), or with "function" in the place of the name and NAME and a ```json block behind (V3).
  kDeepSeek,
  // The whole answer is {"name": ..., "parameters": {...}}, after <|python_tag|> or without it.
  kLlama,
};

// What of a text is to be told apart.
struct ChatFormat {
  bool tools = false;  // calls are looked for
  ToolSyntax syntax = ToolSyntax::kHermes;
  bool one_call = false;             // parallel_tool_calls: false
  bool reasoning = true;             // reasoning is told apart from the answer
  bool begins_in_reasoning = false;  // the prompt ends with <think>
  std::string prefix;                // of the answer, which the prompt ends with (a forced call)
};

// A piece of an answer.
struct ChatPiece {
  enum class Kind { kContent, kReasoning, kCall };
  Kind kind = Kind::kContent;
  std::string text;  // of a call: its arguments, JSON
  std::string call_name;
};

// Cuts a text that comes piece by piece; what comes out does not depend on how it was cut before.
// A plain value.
class ChatParser {
 public:
  explicit ChatParser(ChatFormat format);

  // What is certain now.
  std::vector<ChatPiece> Append(std::string_view text);
  // The rest. A call that was not finished is content.
  std::vector<ChatPiece> Finish();
  bool has_calls() const { return calls_ > 0; }

 private:
  enum class State { kBegin, kReasoning, kAfterReasoning, kContent, kCall, kEnd };

  // One step of work on the held text; false where it needs more.
  bool Step(bool last, std::vector<ChatPiece>& pieces);
  bool StepBegin(bool last);
  bool StepReasoning(bool last, std::vector<ChatPiece>& pieces);
  bool StepContent(bool last, std::vector<ChatPiece>& pieces);
  bool StepCall(bool last, std::vector<ChatPiece>& pieces);
  bool StepLlama(bool last, std::vector<ChatPiece>& pieces);
  void Emit(ChatPiece::Kind kind, std::string text, std::vector<ChatPiece>& pieces);
  bool EmitCall(std::string_view body, std::vector<ChatPiece>& pieces);

  ChatFormat format_;
  State state_ = State::kBegin;
  std::string held_;
  std::string spaces_;  // before what may be a call: content only if something follows
  bool may_be_llama_call_ = false;
  int calls_ = 0;
};

}  // namespace longspan::server
