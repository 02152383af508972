// `longspan trace`: what a file of --trace-out says.
#include <limits>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/output_file.h"
#include "apps/trace_file.h"
#include "apps/trace_summary.h"
#include "apps/trace_svg.h"

namespace longspan::apps {
namespace {

struct TraceFlags {
  std::string file;
  std::string svg;
  int svg_width = 1200;
  double from_ms = -std::numeric_limits<double>::infinity();
  double to_ms = std::numeric_limits<double>::infinity();
  bool json = false;
};

CommandResult ShowTrace(const TraceFlags& flags) {
  if (!(flags.from_ms < flags.to_ms))
    return CommandResult::Usage(base::InvalidArgument("--from-ms {} must lie before --to-ms {}",
                                                      flags.from_ms, flags.to_ms));
  const auto trace = ReadTrace(flags.file);
  if (!trace.ok()) return trace.status();
  const TraceSummary summary =
      Summarise(*trace, WindowOf(*trace, 1000 * flags.from_ms, 1000 * flags.to_ms));
  if (summary.window.length() <= 0)
    return base::InvalidArgument("nothing was computed in that part of '{}'", flags.file);
  if (!trace->ended)
    WriteMessage(
        fmt::format("'{}' has no end: the run was cut off, this is what it wrote\n", flags.file));
  if (!flags.svg.empty()) {
    base::Status status = WriteOutputFile(flags.svg, DrawTrace(*trace, summary, flags.svg_width));
    if (!status.ok()) return status;
  }
  if (flags.json) {
    nlohmann::ordered_json json = ToJson(summary);
    json["ended"] = trace->ended;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}", ToText(summary));
  }
  return {};
}

}  // namespace

void AddTraceCommand(CLI::App& app, Command& selected) {
  CLI::App* command =
      app.add_subcommand("trace", "where the time went in a file of --trace-out, and its picture");
  auto flags = std::make_shared<TraceFlags>();
  command->add_option("file", flags->file, "what --trace-out wrote")
      ->type_name("FILE")
      ->required()
      ->group("Input");
  command
      ->add_option("--from-ms", flags->from_ms,
                   "leave out what is before, since the first plan [the start]")
      ->type_name("MS")
      ->group("Input");
  command->add_option("--to-ms", flags->to_ms, "leave out what is after [the end]")
      ->type_name("MS")
      ->group("Input");
  command->add_option("--svg", flags->svg, "draw the Gantt chart of all ranks to this file")
      ->type_name("FILE")
      ->group("Output");
  command->add_option("--svg-width", flags->svg_width, "of the picture, in pixels")
      ->type_name("PIXELS")
      ->check(CLI::Range(300, 100000))
      ->capture_default_str()
      ->group("Output");
  command->add_flag("--json", flags->json, "print one JSON object")->group("Output");
  command->footer(
      "Shares are of a rank's compute thread, from the first rank's start to the last one's end:\n"
      "busy in kernels; transfer in the transport's calls; host all other work; bubble the rest,\n"
      "waiting for input or without a plan. Transfers themselves go on beside it.");
  command->callback([&selected, flags] { selected = [flags] { return ShowTrace(*flags); }; });
}

}  // namespace longspan::apps
