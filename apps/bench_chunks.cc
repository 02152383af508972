// `longspan bench chunks`: chunk policies side by side, and how well chunk times are predicted.
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_run.h"
#include "apps/bench_table.h"
#include "engine/stage_seconds.h"
#include "plan/chunk_planner.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct ChunksFlags {
  EngineFlags engine;
  std::vector<int64_t> prompt_lengths = {16384};
  std::vector<std::string> policies = {"fixed", "planned"};
  int repeat = 3;
  bool json = false;
};

// One prompt, and what was predicted of it before it began.
struct ChunksRun {
  double seconds = 0;
  double predicted_s = 0;
  double chunk_error = 0;  // median over its chunks and stages
  double bubble_share = 0;
  double cpu_share = 1;
  std::vector<int64_t> chunk_ends;

  double error() const { return predicted_s / seconds - 1; }
};

struct ChunksRow {
  std::string policy;
  int64_t prompt_length = 0;
  std::vector<ChunksRun> runs;  // by their time

  const ChunksRun& Median() const { return runs[(runs.size() - 1) / 2]; }
};

base::Result<ChunksRun> MeasurePrompt(engine::Engine& engine, const spec::Mesh& mesh,
                                      int64_t length, uint64_t stream) {
  const plan::PipelineFit fit = engine.step_time();
  std::vector<double> errors;
  ChunksRun run;
  const auto observe = [&](const engine::StepRecord& step) {
    plan::StepWork work;
    for (const auto& slice : step.slices) {
      if (!slice.prefill) continue;
      work.AddChunk(slice.begin, slice.end, fit.top_k());
      run.chunk_ends.push_back(slice.end);
    }
    const std::vector<double> seconds = engine::StageSeconds(step, mesh);
    for (size_t stage = 0; stage < seconds.size(); ++stage)
      errors.push_back(std::abs(fit.rank_costs()[stage].Seconds(work) / seconds[stage] - 1));
  };
  LONGSPAN_ASSIGN_OR_RETURN(const PrefillRun prefill,
                            RunPrefill(engine, {BenchRequest(engine, 0, length, stream)}, observe));
  run.seconds = prefill.seconds;
  run.predicted_s = plan::Predict(fit.cost(), 0, run.chunk_ends).makespan_s;
  run.chunk_error = SpreadOf(std::move(errors)).median;
  run.bubble_share = prefill.report.bubble_share();
  run.cpu_share = prefill.report.cpu_share();
  return run;
}

// In turns, so that a machine that changes is the same to all policies.
base::Status MeasureRows(const ChunksFlags& flags, std::span<ChunksRow> rows) {
  std::vector<std::unique_ptr<engine::Engine>> engines;
  for (const ChunksRow& row : rows) {
    EngineFlags of_row = flags.engine;
    of_row.dynamic_chunking = false;
    of_row.chunk_policy = row.policy;
    // A trace is of one engine.
    if (&row != &rows.back()) of_row.trace_out.clear();
    // Each with its own longest chunk, where none is given.
    LONGSPAN_ASSIGN_OR_RETURN(const EngineSetup setup, ResolveSetup(of_row));
    LONGSPAN_ASSIGN_OR_RETURN(auto engine,
                              StartBenchEngine(of_row, setup, {.tokens = row.prompt_length + 1}));
    // The first prompt warms up and teaches.
    LONGSPAN_RETURN_IF_ERROR(
        MeasurePrompt(*engine, flags.engine.mesh, row.prompt_length, 0).status());
    engines.push_back(std::move(engine));
  }
  for (int repeat = 0; repeat < flags.repeat; ++repeat) {
    for (size_t row = 0; row < rows.size(); ++row) {
      LONGSPAN_ASSIGN_OR_RETURN(
          ChunksRun run, MeasurePrompt(*engines[row], flags.engine.mesh, rows[row].prompt_length,
                                       static_cast<uint64_t>(repeat) + 1));
      rows[row].runs.push_back(std::move(run));
    }
  }
  for (ChunksRow& row : rows)
    std::sort(row.runs.begin(), row.runs.end(),
              [](const ChunksRun& a, const ChunksRun& b) { return a.seconds < b.seconds; });
  return base::OkStatus();
}

ordered_json ToJson(const ChunksRun& run) {
  return {{"ttft_s", run.seconds},
          {"predicted_ttft_s", run.predicted_s},
          {"ttft_error", run.error()},
          {"chunk_error", run.chunk_error},
          {"bubble_share", run.bubble_share},
          {"cpu_share", run.cpu_share},
          {"chunk_ends", run.chunk_ends}};
}

ordered_json ToJson(const ChunksRow& row) {
  ordered_json json = {{"policy", row.policy}, {"prompt_len", row.prompt_length}};
  json.update(ToJson(row.Median()));
  json["runs"] = ordered_json::array();
  for (const ChunksRun& run : row.runs) json["runs"].push_back(ToJson(run));
  return json;
}

void PrintTable(const std::vector<ChunksRow>& rows) {
  BenchTable table({{"policy", ""},
                    {"prompt", "tokens"},
                    {"chunks", ""},
                    {"TTFT", "s"},
                    {"predicted", "s"},
                    {"error", "%"},
                    {"chunks' error", "%"},
                    {"bubble", "%"},
                    {"CPU", "% had"}});
  for (const ChunksRow& row : rows) {
    for (const ChunksRun& run : row.runs) {
      table.AddRow(
          {row.policy, WithThousands(static_cast<double>(row.prompt_length)),
           fmt::format("{}", run.chunk_ends.size()), fmt::format("{:.3f}", run.seconds),
           fmt::format("{:.3f}", run.predicted_s), fmt::format("{:+.1f}", 100 * run.error()),
           fmt::format("{:.1f}", 100 * run.chunk_error),
           fmt::format("{:.1f}", 100 * run.bubble_share),
           fmt::format("{:.1f}", 100 * run.cpu_share)},
          fmt::format("{}{}", run.cpu_share < kLeastCpuShare ? "busy " : "",
                      &run == &row.Median() && row.runs.size() > 1 ? "median" : ""));
    }
  }
  fmt::print("{}", table.ToText());
}

CommandResult BenchChunks(const ChunksFlags& flags) {
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckEngineFlags(flags.engine));
  LONGSPAN_ASSIGN_OR_RETURN(const EngineSetup setup, ResolveSetup(flags.engine));
  // A GPU may have no room for the weights of several engines.
  const bool in_turns = setup.backend != "cuda";
  std::vector<ChunksRow> rows;
  for (const int64_t prompt_length : flags.prompt_lengths) {
    std::vector<ChunksRow> of_length;
    for (const std::string& policy : flags.policies)
      of_length.push_back({.policy = policy, .prompt_length = prompt_length, .runs = {}});
    const size_t at_once = in_turns ? of_length.size() : 1;
    for (size_t row = 0; row < of_length.size(); row += at_once)
      LONGSPAN_RETURN_IF_ERROR(MeasureRows(flags, std::span(of_length).subspan(row, at_once)));
    std::move(of_length.begin(), of_length.end(), std::back_inserter(rows));
  }
  if (flags.json) {
    ordered_json list = ordered_json::array();
    for (const ChunksRow& row : rows) list.push_back(ToJson(row));
    fmt::print("{}\n", ordered_json{{"rows", std::move(list)}}.dump());
  } else {
    PrintTable(rows);
  }
  return {};
}

}  // namespace

void AddBenchChunks(CLI::App& bench, Command& selected) {
  CLI::App* command =
      bench.add_subcommand("chunks", "chunk policies, and predicted against measured times");
  auto flags = std::make_shared<ChunksFlags>();
  command->add_option("--prompt-len", flags->prompt_lengths, "tokens of a prompt, one row each")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("TOKENS,...")
      ->capture_default_str()
      ->group("Measurement");
  command->add_option("--policies", flags->policies, "policies to compare")
      ->delimiter(',')
      ->check(CLI::IsMember({"fixed", "quadratic", "planned"}))
      ->type_name("POLICY,...")
      ->capture_default_str()
      ->group("Measurement");
  command->add_option("--repeat", flags->repeat, "prompts per row; the median one counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Measurement");
  command->add_flag("--json", flags->json, "one JSON object on the standard output")
      ->group("Measurement");
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "Every policy has an engine of its own, which learns chunk times from one prompt of that\n"
      "length; then prompts take turns. Predicted is what was predicted before a prompt began.\n"
      "--trace-out is of the last policy. Rows are busy where the threads had less than 95% of\n"
      "their cores.");
  command->callback([&selected, flags] { selected = [flags] { return BenchChunks(*flags); }; });
}

}  // namespace longspan::apps
