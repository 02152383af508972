// How a model writes reasoning and calls of tools into its text.
#pragma once

#include <string>

namespace longspan::server {

enum class ToolSyntax {
  // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen, Hermes.
  kHermes,
  // The whole answer is {"name": ..., "parameters": {...}}, after <|python_tag|> or without it;
  // several are separated by semicolons: Llama 3.
  kLlama,
  // <｜tool▁calls▁begin｜>, then calls <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, a ```json
  // block, and <｜tool▁call▁end｜>; at last <｜tool▁calls▁end｜>.
  kDeepSeekV3,
  // The same marks around NAME<｜tool▁sep｜>{...}: V3.1, V3.2-Exp.
  kDeepSeekV31,
  // <｜DSML｜function_calls>, then <｜DSML｜invoke name="..."> with
  // <｜DSML｜parameter name="..." string="true">...</｜DSML｜parameter>: V3.2.
  kDeepSeekV32,
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
  enum class Kind {
    kContent,
    kReasoning,
    kCall,       // a call begins; the text is the name
    kArguments,  // of the call that began last, as the model writes them: JSON when it is complete
  };
  Kind kind = Kind::kContent;
  std::string text;
};

}  // namespace longspan::server
