// `longspan simulate`: how a cluster that need not be there would serve prompts.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_table.h"
#include "apps/cluster_setup.h"
#include "apps/commands.h"
#include "apps/input_files.h"
#include "apps/line_chart.h"
#include "apps/output_file.h"
#include "apps/simulated_trace.h"
#include "base/log.h"
#include "plan/memory_use.h"
#include "sim/comm_volume.h"
#include "sim/simulation.h"
#include "sim/workload.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct SimulateFlags {
  EngineFlags engine;
  bool ignore_block_divisibility = false;
  std::vector<int64_t> prompt_lengths;
  int prompts = 1;
  std::string workload;
  std::string svg;
  int svg_width = 1200;
  bool json = false;
};

// One line of the output: a prompt length, or a whole workload.
struct Row {
  sim::Workload workload;
  sim::SimulationResult result;
};

// Of the first request, in order.
std::vector<plan::RowRange> ChunksOf(const sim::SimulationResult& result) {
  std::vector<plan::RowRange> chunks;
  for (const engine::StepRecord& step : result.steps)
    for (const engine::ComputedSlice& slice : step.slices)
      if (slice.prefill && slice.sequence.value == 1) chunks.push_back({slice.begin, slice.end});
  return chunks;
}

// All rows that the steps compute, by step, up to the end of the longest sequence: for what ranks
// send each other.
std::vector<plan::RowRange> StepsOf(const sim::SimulationResult& result) {
  std::vector<plan::RowRange> steps;
  for (const engine::StepRecord& step : result.steps) {
    int64_t rows = 0;
    int64_t longest = 0;
    for (const engine::ComputedSlice& slice : step.slices) {
      rows += slice.end - slice.begin;
      longest = std::max(longest, slice.end);
    }
    steps.push_back({longest - rows, longest});
  }
  return steps;
}

plan::MemoryUse FullestRank(const sim::SimulationSetup& setup) {
  plan::MemoryUse fullest;
  for (int stage = 0; stage < setup.deployment.mesh.pp; ++stage) {
    const auto ranges = plan::RangesOfRank(setup.stages, setup.deployment.mesh.pp, stage);
    const auto use = plan::MemoryOfRank(setup.deployment, ranges, setup.scheduler.chunk_tokens);
    fullest.weight_bytes = std::max(fullest.weight_bytes, use.weight_bytes);
    fullest.kv_bytes_per_token = std::max(fullest.kv_bytes_per_token, use.kv_bytes_per_token);
  }
  return fullest;
}

double MeanTtft(const sim::SimulationResult& result) {
  double sum = 0;
  for (const sim::RequestOutcome& request : result.requests) sum += request.ttft_s;
  return sum / static_cast<double>(result.requests.size());
}

ordered_json ToJson(const sim::SimulationSetup& setup, const Row& row) {
  const sim::SimulationResult& result = row.result;
  const plan::PipelineShape shape = {setup.deployment.mesh.pp, setup.loops};
  const auto steps = StepsOf(result);
  const sim::CommVolume volume = sim::VolumeOf(setup.deployment, shape, steps);
  const plan::MemoryUse use = FullestRank(setup);
  ordered_json json = {{"prompt_len", row.workload.front().prompt_tokens},
                       {"prompts", result.requests.size()},
                       {"ttft_s", result.requests.front().ttft_s},
                       {"mean_ttft_s", MeanTtft(result)},
                       {"makespan_s", result.makespan_s},
                       {"tokens_per_s", result.prompt_tokens_per_s},
                       {"bubble_share", result.bubble_share}};
  json["chunks"] = ordered_json::array();
  for (const plan::RowRange& chunk : ChunksOf(result))
    json["chunks"].push_back(chunk.end - chunk.begin);
  json["kv_bytes_per_gpu"] = static_cast<int64_t>(
      use.kv_bytes_per_token * static_cast<double>(result.most_pages * setup.page_size));
  json["kv_capacity_tokens"] = result.pages * setup.page_size;
  json["weight_bytes_per_gpu"] = static_cast<int64_t>(use.weight_bytes);
  json["comm_bytes"] = {{"pp", static_cast<int64_t>(volume.pipeline)},
                        {"tp", static_cast<int64_t>(volume.tensor)},
                        {"cp", static_cast<int64_t>(volume.context)},
                        {"ep", static_cast<int64_t>(volume.expert)}};
  return json;
}

std::string ToText(const sim::SimulationSetup& setup, const std::vector<Row>& rows) {
  BenchTable table({{"prompt", "tokens"},
                    {"prompts", ""},
                    {"chunks", ""},
                    {"TTFT", "s"},
                    {"mean TTFT", "s"},
                    {"prefill", "tok/s"},
                    {"bubble", "%"},
                    {"KV", "GB/GPU"},
                    {"weights", "GB/GPU"}});
  const plan::MemoryUse use = FullestRank(setup);
  for (const Row& row : rows) {
    const double kv =
        use.kv_bytes_per_token * static_cast<double>(row.result.most_pages * setup.page_size) / 1e9;
    table.AddRow(
        {WithThousands(static_cast<double>(row.workload.front().prompt_tokens)),
         fmt::format("{}", row.workload.size()), fmt::format("{}", ChunksOf(row.result).size()),
         fmt::format("{:.3f}", row.result.requests.front().ttft_s),
         fmt::format("{:.3f}", MeanTtft(row.result)), WithThousands(row.result.prompt_tokens_per_s),
         fmt::format("{:.1f}", 100 * row.result.bubble_share), fmt::format("{:.2f}", kv),
         fmt::format("{:.1f}", use.weight_bytes / 1e9)});
  }
  return table.ToText();
}

base::Result<std::string> Draw(const sim::SimulationSetup& setup, const std::vector<Row>& rows,
                               int width) {
  if (rows.size() == 1) return DrawSimulation(rows.front().result, setup.deployment.mesh, width);
  ChartLine line{.name =
                     fmt::format("PP{} CP{} TP{} V{}", setup.deployment.mesh.pp,
                                 setup.deployment.mesh.cp, setup.deployment.mesh.tp, setup.loops)};
  for (const Row& row : rows)
    line.points.emplace_back(static_cast<double>(row.workload.front().prompt_tokens),
                             row.result.requests.front().ttft_s);
  return DrawCharts({{.title = fmt::format(
                          "Time to first token, {} on {} {}", setup.deployment.model.architecture,
                          setup.deployment.mesh.ranks(), setup.deployment.hardware.name),
                      .x_name = "prompt, tokens",
                      .y_name = "seconds",
                      .logarithmic_x = true,
                      .logarithmic_y = true,
                      .lines = {line}}},
                    width);
}

base::Result<std::vector<sim::Workload>> WorkloadsOf(const SimulateFlags& flags) {
  std::vector<sim::Workload> workloads;
  if (!flags.workload.empty()) {
    LONGSPAN_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(flags.workload));
    LONGSPAN_ASSIGN_OR_RETURN(auto workload, sim::ParseWorkload(text, flags.workload));
    workloads.push_back(std::move(workload));
    return workloads;
  }
  for (const int64_t length : flags.prompt_lengths)
    workloads.push_back(
        sim::Workload(static_cast<size_t>(flags.prompts), {.prompt_tokens = length}));
  return workloads;
}

CommandResult RunSimulation(const SimulateFlags& flags) {
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckSimulatedFlags(flags.engine));
  if (flags.prompt_lengths.empty() == flags.workload.empty())
    return CommandResult::Usage(base::InvalidArgument("give either --prompt-len or --workload"));
  if (flags.engine.hardware.empty())
    return CommandResult::Usage(base::InvalidArgument("--hardware is missing: name a profile"));
  const ClusterFlags cluster_flags = {flags.engine.hardware, flags.engine.node_link,
                                      flags.ignore_block_divisibility};
  const auto cluster = LoadClusterModel(flags.engine.model_path, cluster_flags);
  if (!cluster.ok()) return cluster.status();
  const auto setup = SimulationSetupOf(flags.engine, cluster_flags, *cluster);
  if (!setup.ok()) return CommandResult::Usage(setup.status());
  auto workloads = WorkloadsOf(flags);
  if (!workloads.ok()) return workloads.status();
  std::vector<Row> rows;
  for (sim::Workload& workload : *workloads) {
    auto result = sim::Simulate(*setup, workload);
    if (!result.ok()) return result.status();
    rows.push_back({std::move(workload), std::move(*result)});
  }
  if (!flags.svg.empty()) {
    const auto svg = Draw(*setup, rows, flags.svg_width);
    if (!svg.ok()) return svg.status();
    base::Status written = WriteOutputFile(flags.svg, *svg);
    if (!written.ok()) return written;
  }
  if (flags.json) {
    ordered_json json = {{"rows", ordered_json::array()}};
    for (const Row& row : rows) json["rows"].push_back(ToJson(*setup, row));
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}", ToText(*setup, rows));
  }
  return {};
}

}  // namespace

void AddSimulateCommand(CLI::App& app, Command& selected) {
  CLI::App* command = app.add_subcommand(
      "simulate", "the same scheduler over stages that only take the time a profile says");
  auto flags = std::make_shared<SimulateFlags>();
  command->add_option("--prompt-len", flags->prompt_lengths, "lengths of prompts, a run for each")
      ->type_name("TOKENS,...")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->group("Workload");
  command->add_option("--prompts", flags->prompts, "so many of them at once")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str()
      ->group("Workload");
  command
      ->add_option("--workload", flags->workload,
                   "a JSON file of requests: when they come, tokens of prompt and output")
      ->type_name("FILE")
      ->group("Workload");
  AddEngineFlags(*command, flags->engine);
  command
      ->add_flag("--ignore-block-divisibility", flags->ignore_block_divisibility,
                 "count also what cuts blocks of eight-bit weights, which no run can do")
      ->group("Cluster");
  command
      ->add_option("--svg", flags->svg,
                   "draw to this file: the Gantt chart of one run, of several TTFT over length")
      ->type_name("FILE")
      ->group("Output");
  command->add_option("--svg-width", flags->svg_width, "of the picture, in pixels")
      ->check(CLI::Range(300, 100000))
      ->capture_default_str()
      ->group("Output");
  command->add_flag("--json", flags->json, "print one JSON object")->group("Output");
  command->footer(
      "TTFT is that of the first request, in the table and as ttft_s; mean_ttft_s is over all of "
      "them.\nbubble_share is of prefill, as of generate.\n"
      "Needs no more of a model than its config.json. docs/planner.md says what is counted, what "
      "is\nassumed, and how far predictions were from published results.");
  command->callback([&selected, flags] { selected = [flags] { return RunSimulation(*flags); }; });
}

}  // namespace longspan::apps
