// `longspan bench`: how fast this machine computes a model.
#include <CLI/CLI.hpp>

#include "apps/bench_run.h"

namespace longspan::apps {
namespace {

// Benches of later versions: valid names that this build lacks.
void AddPlannedBench(CLI::App& bench, Command& selected, const char* name) {
  CLI::App* command = bench.add_subcommand(name, "not built yet")->group("");
  command->allow_extras();
  command->callback([&selected, name] {
    selected = [name] {
      return CommandResult::Usage(base::Unimplemented("'bench {}' is not built yet", name));
    };
  });
}

}  // namespace

void AddBenchCommand(CLI::App& app, Command& selected) {
  CLI::App* bench = app.add_subcommand("bench", "measure speed on this machine");
  bench->require_subcommand(1);
  bench->footer(
      "Prompts are random token ids of a fixed seed. With --load-format dummy a folder with only\n"
      "config.json is enough. Rows marked busy were disturbed by other work on the machine:\n"
      "measure again.");
  AddBenchPrefill(*bench, selected);
  AddBenchDecode(*bench, selected);
  AddBenchPipeline(*bench, selected);
  AddBenchChunks(*bench, selected);
  AddBenchOps(*bench, selected);
  AddPlannedBench(*bench, selected, "serve");
}

}  // namespace longspan::apps
