// `longspan tokenize`: text or a conversation to token ids.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/input_files.h"
#include "apps/model_location.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct TokenizeFlags {
  std::string model_path;
  std::string text;
  std::string text_file;
  std::string chat;
  bool add_special = false;
  bool json = false;
};

CommandResult Tokenize(const TokenizeFlags& flags, bool has_text) {
  if (int{has_text} + int{!flags.text_file.empty()} + int{!flags.chat.empty()} != 1)
    return CommandResult::Usage(
        base::InvalidArgument("give exactly one of --text, --text-file and --chat"));
  auto model_dir = ResolveModel(flags.model_path);
  if (!model_dir.ok()) return model_dir.status();
  auto tokenizer = text::Tokenizer::Load(*model_dir);
  if (!tokenizer.ok()) return tokenizer.status();

  std::string text = flags.text;
  const std::string& file = flags.chat.empty() ? flags.text_file : flags.chat;
  if (!file.empty()) {
    auto content = ReadInputFile(file);
    if (!content.ok()) return content.status();
    text = std::move(*content);
  }
  if (!flags.chat.empty()) {
    auto rendered = RenderChat(*model_dir, text);
    if (!rendered.ok()) return rendered.status();
    text = std::move(*rendered);
  }
  const auto ids = (*tokenizer)->Encode(text, {.add_special = flags.add_special});
  if (!ids.ok()) return ids.status();
  if (flags.json) {
    fmt::print("{}\n", ordered_json{{"ids", *ids}, {"text", text}}.dump());
  } else {
    if (!flags.chat.empty()) fmt::print("{}\n", text);
    fmt::print("{}\n", ordered_json(*ids).dump());
  }
  return {};
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, Command& selected) {
  CLI::App* command = app.add_subcommand("tokenize", "text or a conversation to token ids");
  auto flags = std::make_shared<TokenizeFlags>();
  command
      ->add_option("--model-path,--model", flags->model_path, "model folder [the embedded model]")
      ->envname("LONGSPAN_MODEL_PATH");
  CLI::Option* text = command->add_option("--text", flags->text, "the text itself");
  command->add_option("--text-file", flags->text_file,
                      "a file with the text; - for the standard input");
  command->add_option(
      "--chat", flags->chat,
      R"(a file {"messages":[...],"tools":[...],"add_generation_prompt":true,"kwargs":{}})");
  command->add_flag("--add-special", flags->add_special, "add the tokens that begin a text");
  command->add_flag("--json", flags->json, R"(print {"ids":[...],"text"})");
  command->callback([&selected, flags, text] {
    selected = [flags, has_text = text->count() > 0] { return Tokenize(*flags, has_text); };
  });
}

}  // namespace longspan::apps
