#include "apps/commands.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/console.h"

namespace longspan::apps {
namespace {

constexpr const char* kAbout =
    "Longspan: serves large language models at very long contexts.\n"
    "A prompt is cut into chunks that flow through pipeline stages.";

void PrintFailure(const base::Status& status) {
  WriteMessage(fmt::format("longspan: {}\n", status.message()));
}

// CLI11 explains some errors over several lines; users get one sentence.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// What was not printed in full has not been done.
CommandResult Finished(CommandResult result) {
  base::Status written = FinishOutput();
  if (result.ok() && !written.ok()) return written;
  return result;
}

int Run(const Command& command) {
  try {
    const CommandResult result = Finished(command());
    if (!result.ok()) PrintFailure(result.status());
    return result.exit_code();
  } catch (const std::bad_alloc&) {
    PrintFailure(
        base::ResourceExhausted("out of memory: use a smaller prompt or fewer --max-total-tokens"));
    return kExitFailed;
  } catch (const std::system_error& error) {
    // fmt::print where stdout takes no more, std::thread where no thread can be had.
    const base::Status written = FinishOutput();
    PrintFailure(written.ok()
                     ? base::ResourceExhausted("the system refuses what the command needs: "
                                               "{}",
                                               error.code().message())
                     : written);
    return kExitFailed;
  }
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  OpenStandardStreams();
  // A reader of our output that goes away shows as a failed write.
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app(kAbout, "longspan");
  app.set_version_flag("--version", LONGSPAN_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(44);
  Command selected;
  AddGenerateCommand(app, selected);
  AddScoreCommand(app, selected);
  AddTokenizeCommand(app, selected);
  AddDetokenizeCommand(app, selected);
  AddServeCommand(app, selected);
  AddTraceCommand(app, selected);
  AddSimulateCommand(app, selected);
  AddPlanCommand(app, selected);
  AddBenchCommand(app, selected);
  AddRankCommand(app, selected);
  const auto named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(named).empty()) {
    PrintFailure(base::InvalidArgument("there is no command '{}' (see longspan --help)", argv[1]));
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version come as errors with code 0.
    if (error.get_exit_code() == 0)
      return Run([&]() -> CommandResult {
        app.exit(error);
        return {};
      });
    PrintFailure(base::InvalidArgument("{} (see longspan --help)", OneLine(error.what())));
    return kExitUsage;
  }
  return Run(selected);
}

}  // namespace longspan::apps
