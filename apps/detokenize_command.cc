// `longspan detokenize`: token ids to text.
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/input_files.h"
#include "apps/model_location.h"
#include "text/tokenizer.h"

namespace longspan::apps {
namespace {

struct DetokenizeFlags {
  std::string model_path;
  std::string ids_file;
  bool skip_special = false;
  bool json = false;
};

CommandResult Detokenize(const DetokenizeFlags& flags) {
  auto model_dir = ResolveModel(flags.model_path);
  if (!model_dir.ok()) return model_dir.status();
  const auto tokenizer = text::Tokenizer::Load(*model_dir);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto lists = ReadIdLists(flags.ids_file);
  if (!lists.ok()) return lists.status();
  if (lists->size() != 1)
    return base::InvalidArgument("'{}' holds {} lists of ids, give one", flags.ids_file,
                                 lists->size());
  const auto text = (*tokenizer)->Decode(lists->front(), flags.skip_special);
  if (!text.ok()) return text.status();
  if (flags.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"text", *text}}.dump());
  } else {
    fmt::print("{}\n", *text);
  }
  return {};
}

}  // namespace

void AddDetokenizeCommand(CLI::App& app, Command& selected) {
  CLI::App* command = app.add_subcommand("detokenize", "token ids to text");
  auto flags = std::make_shared<DetokenizeFlags>();
  command
      ->add_option("--model-path,--model", flags->model_path, "model folder [the embedded model]")
      ->envname("LONGSPAN_MODEL_PATH");
  command
      ->add_option("--ids-file", flags->ids_file, "a JSON array of ids; - for the standard input")
      ->required();
  command->add_flag("--skip-special", flags->skip_special, "leave special tokens out");
  command->add_flag("--json", flags->json, R"(print {"text"})");
  command->callback([&selected, flags] { selected = [flags] { return Detokenize(*flags); }; });
}

}  // namespace longspan::apps
