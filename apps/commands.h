// The commands of the program.
#pragma once

#include <functional>
#include <utility>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}  // namespace CLI

namespace longspan::apps {

// Exit codes: done, it could not be done, wrong usage.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// What a command returns: nothing when it is done, else why. Implicit from a Status that tells why
// the work failed; Usage() for a fault of the command line itself.
class [[nodiscard]] CommandResult {
 public:
  CommandResult() = default;
  CommandResult(base::Status status)  // NOLINT(google-explicit-constructor)
      : exit_code_(status.ok() ? kExitDone : kExitFailed), status_(std::move(status)) {}
  static CommandResult Usage(base::Status status) {
    CommandResult result(std::move(status));
    if (result.exit_code_ != kExitDone) result.exit_code_ = kExitUsage;
    return result;
  }

  bool ok() const { return exit_code_ == kExitDone; }
  int exit_code() const { return exit_code_; }
  const base::Status& status() const { return status_; }

 private:
  int exit_code_ = kExitDone;
  base::Status status_;
};

using Command = std::function<CommandResult()>;

// Each adds its subcommand; `selected` becomes the command when the line names it.
void AddGenerateCommand(CLI::App& app, Command& selected);
void AddScoreCommand(CLI::App& app, Command& selected);
void AddTokenizeCommand(CLI::App& app, Command& selected);
void AddDetokenizeCommand(CLI::App& app, Command& selected);
void AddServeCommand(CLI::App& app, Command& selected);
void AddTraceCommand(CLI::App& app, Command& selected);
void AddSimulateCommand(CLI::App& app, Command& selected);
void AddPlanCommand(CLI::App& app, Command& selected);
void AddBenchCommand(CLI::App& app, Command& selected);
// How the program starts its stages; not for users.
void AddRankCommand(CLI::App& app, Command& selected);

// Parses, runs, prints one sentence to stderr on failure, and returns the exit code.
int RunCommandLine(int argc, char** argv);

}  // namespace longspan::apps

// Returns from a command when the expression's Status is not ok: wrong usage.
#define LONGSPAN_RETURN_USAGE_IF_ERROR(expression)                       \
  do {                                                                   \
    if (::longspan::base::Status status_ = (expression); !status_.ok())  \
      return ::longspan::apps::CommandResult::Usage(std::move(status_)); \
  } while (false)
