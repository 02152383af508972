// Chat templates: from the messages of a conversation to the text of a prompt.
//
// Templates are the Jinja2 programs that models carry in tokenizer_config.json. They are rendered
// by an engine of our own that covers what chat templates use and behaves as Jinja2 3.1 in the
// sandbox of Hugging Face transformers does (trim_blocks, lstrip_blocks, tojson without HTML
// escapes, raise_exception, strftime_now, {% generation %}, break and continue). What the engine
// does not know is an error that names the construct and its line, never a wrong prompt.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace longspan::text {

class JinjaTemplate;

// What a template is rendered with. Objects keep the order of their keys, which templates can see.
struct ChatRequest {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  // an array, or null when there are none
  bool add_generation_prompt = true;
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // e.g. enable_thinking
};

// Reads {"messages": [...], "tools": [...], "add_generation_prompt": true, "kwargs": {}}, where
// only messages must be given. InvalidArgument for broken JSON, unknown keys, values of another
// type, and JSON nested deeper than 100 levels.
base::Result<ChatRequest> ParseChatRequest(std::string_view json);

// A parsed template with the special tokens it refers to. Immutable, movable and cheap to copy; any
// number of threads may render at once.
class ChatTemplate {
 public:
  // The template of a Hugging Face model folder: chat_template.jinja where it exists, else
  // `chat_template` of tokenizer_config.json (a string, or a list of named ones of which "tool_use"
  // is rendered when there are tools and "default" otherwise), else chat_template.json. NotFound
  // when the model has none.
  static base::Result<ChatTemplate> Load(const std::filesystem::path& model_dir);

  // Parses `source`. InvalidArgument for a syntax error, Unimplemented for a construct, filter or
  // test that the engine lacks; both name the line.
  static base::Result<ChatTemplate> Parse(std::string_view source, std::string bos_token,
                                          std::string eos_token);

  // The prompt text. Special tokens are part of it, so it is to be tokenised without adding any.
  // InvalidArgument when the template refuses the request (raise_exception: its message alone) or
  // cannot be evaluated with it; ResourceExhausted when it exceeds the bounds of jinja_context.h.
  base::Result<std::string> Render(const ChatRequest& request) const;

 private:
  ChatTemplate() = default;

  std::shared_ptr<const JinjaTemplate> default_;
  std::shared_ptr<const JinjaTemplate> tool_use_;  // null: the default renders tools, too
  std::map<std::string, nlohmann::ordered_json> special_tokens_;  // by variable: bos_token...
};

}  // namespace longspan::text
