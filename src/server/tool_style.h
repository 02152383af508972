// How a model's chat template shows tools and calls.
#pragma once

#include <string>

#include "server/chat_format.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace longspan::server {

struct ToolStyle {
  ToolSyntax syntax = ToolSyntax::kHermes;
  bool shows_tools = true;      // the template puts the tools into the prompt
  bool null_content = false;    // a message that only calls has null for content, not ""
  bool text_arguments = false;  // arguments of earlier calls are wanted as a text, not an object
};

// Renders an example with every form of its messages, and looks at what comes out; where that does
// not tell, the tokenizer's special tokens do.
ToolStyle FindToolStyle(const text::ChatTemplate& chat_template, const text::Tokenizer& tokenizer);

// What begins a call, so that a model can only go on with it: of the function, or of any if it is
// empty.
std::string CallPrefix(ToolSyntax syntax, const std::string& function);

// What ends the first call of an answer; empty where only the end of the answer does.
std::string CallEnd(ToolSyntax syntax);

// Tells a model of tools that its template does not show (that of DeepSeek V3); for the system
// message. Empty for formats that have no such words.
std::string ToolInstructions(ToolSyntax syntax, const nlohmann::ordered_json& tools);

}  // namespace longspan::server
