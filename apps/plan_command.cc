// `longspan plan`: the layout of a cluster that serves a model best.
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/cluster_setup.h"
#include "apps/commands.h"
#include "apps/line_chart.h"
#include "apps/output_file.h"
#include "apps/plan_report.h"
#include "base/log.h"

namespace longspan::apps {
namespace {

struct PlanFlags {
  std::string model_path;
  ClusterFlags cluster;
  int gpus = 8;
  int64_t prompt_length = 131072;
  double target_ttft_s = 0;
  std::string kv_cache_dtype = "auto";
  std::string kv_placement = "replicated";
  int most_virtual_stages = 4;
  size_t most_layouts = 10;
  double memory_fraction = 0.8;
  bool explain = false;
  std::string svg;
  bool json = false;
};

sim::SearchRequest RequestOf(const PlanFlags& flags, const ClusterModel& cluster) {
  sim::SearchRequest request;
  request.model = cluster.model;
  request.hardware = cluster.hardware;
  request.gpus = flags.gpus;
  request.prompt_tokens = flags.prompt_length;
  request.fp8_weights = cluster.fp8_weights;
  request.weight_block = cluster.weight_block;
  request.node_link = cluster.node_link;
  request.ignore_blocks = flags.cluster.ignore_block_divisibility;
  request.most_virtual_stages = flags.most_virtual_stages;
  request.memory_fraction = flags.memory_fraction;
  if (flags.kv_placement == "sharded") request.kv_placement = plan::KvPlacement::kSharded;
  // A smaller cache loses precision: by default only where the other does not fit.
  if (flags.kv_cache_dtype == "auto") request.kv_bytes = {2, 1};
  if (flags.kv_cache_dtype == "fp8") request.kv_bytes = {1};
  return request;
}

// Over the number of stages, of the best layout's kind, a line for each number of loops.
LineChart EfficiencyChart(const PlanReport& report) {
  LineChart efficiency = {.title = "Share of the ranks' time in kernels, by pipeline stages",
                          .x_name = "pipeline stages",
                          .y_name = "%",
                          .logarithmic_x = true};
  const sim::Layout& best = report.found.layouts.front();
  for (int loops = 1; loops <= report.request.most_virtual_stages; loops *= 2) {
    ChartLine line{.name = fmt::format("V {}, TP {}, CP {}", loops, best.mesh.tp, best.mesh.cp)};
    for (int pp = 1; pp * loops <= report.request.model.layers() && pp <= 64; pp *= 2) {
      spec::Mesh mesh = best.mesh;
      mesh.pp = pp;
      const auto layout = sim::BestOf(report.request, mesh, pp == 1 ? 1 : loops, best.kv_bytes);
      if (layout.ok()) line.points.emplace_back(pp, 100 * layout->busy_share);
    }
    if (!line.points.empty()) efficiency.lines.push_back(std::move(line));
  }
  return efficiency;
}

// Over the prompt's length, a line for each of the best layouts.
LineChart TtftChart(const PlanReport& report) {
  constexpr size_t kMostLines = 4;
  LineChart ttft = {.title = "Time to first token, by length",
                    .x_name = "prompt, tokens",
                    .y_name = "seconds",
                    .logarithmic_x = true,
                    .logarithmic_y = true};
  std::set<std::string> names;
  for (const sim::Layout& layout : report.found.layouts) {
    ChartLine line{
        .name = fmt::format("PP {} CP {} TP {}", layout.mesh.pp, layout.mesh.cp, layout.mesh.tp)};
    // Of layouts that differ in their experts and loops only, the best one.
    if (names.size() == kMostLines || !names.insert(line.name).second) continue;
    for (int64_t length = 8192; length <= report.request.model.context_length; length *= 2) {
      sim::SearchRequest request = report.request;
      request.prompt_tokens = length;
      const auto best_of = sim::BestOf(request, layout.mesh, layout.loops, layout.kv_bytes);
      if (best_of.ok()) line.points.emplace_back(static_cast<double>(length), best_of->ttft_s);
    }
    if (!line.points.empty()) ttft.lines.push_back(std::move(line));
  }
  return ttft;
}

CommandResult RunPlan(const PlanFlags& flags) {
  constexpr int kSvgWidth = 900;
  if (flags.cluster.hardware.empty())
    return CommandResult::Usage(base::InvalidArgument("--hardware is missing: name a profile"));
  const auto cluster = LoadClusterModel(flags.model_path, flags.cluster);
  if (!cluster.ok()) return cluster.status();
  PlanReport report = {.model_path = flags.model_path,
                       .request = RequestOf(flags, *cluster),
                       .target_ttft_s = flags.target_ttft_s,
                       .most_layouts = flags.most_layouts};
  auto found = sim::SearchLayouts(report.request);
  if (!found.ok()) return found.status();
  report.found = std::move(*found);
  if (!flags.svg.empty()) {
    base::Status written = WriteOutputFile(
        flags.svg, DrawCharts({EfficiencyChart(report), TtftChart(report)}, kSvgWidth));
    if (!written.ok()) return written;
  }
  if (flags.json) {
    auto json = ToJson(report);
    if (flags.explain) json["explanation"] = Explain(report);
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}{}", ToText(report), flags.explain ? Explain(report) : "");
  }
  return {};
}

void AddFlags(CLI::App& command, PlanFlags& flags) {
  command
      .add_option("--model-path,--model", flags.model_path,
                  "a folder with a config.json [the embedded model]")
      ->type_name("DIR")
      ->group("Model");
  AddHardwareFlags(command, flags.cluster.hardware, flags.cluster.node_link);
  command
      .add_flag("--ignore-block-divisibility", flags.cluster.ignore_block_divisibility,
                "count also what no run can do: ranks that cut blocks of eight-bit weights, and "
                "stages wider than a host")
      ->group("Cluster");
  command.add_option("--gpus", flags.gpus, "all of them are used")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group("Cluster");
  command.add_option("--prompt-len", flags.prompt_length, "of the prompt to plan for")
      ->type_name("TOKENS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str()
      ->group("Target");
  command
      .add_option("--target-ttft", flags.target_ttft_s,
                  "seconds to the first token that are wished for [as few as possible]")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->group("Target");
  command
      .add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                  "KV cache type [auto: bf16, and fp8 for layouts where it does not fit]")
      ->check(CLI::IsMember({"auto", "bf16", "fp8"}))
      ->group("Search");
  command
      .add_option("--kv-placement", flags.kv_placement,
                  "the cache of context-parallel ranks: whole at each, or divided over them")
      ->check(CLI::IsMember({"replicated", "sharded"}))
      ->capture_default_str()
      ->group("Search");
  command
      .add_option("--virtual-stages", flags.most_virtual_stages, "the most loops that are tried")
      ->check(CLI::Range(1, 64))
      ->capture_default_str()
      ->group("Search");
  command
      .add_option("--mem-fraction-static", flags.memory_fraction,
                  "of the memory that weights leave, for the KV cache")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str()
      ->group("Search");
}

}  // namespace

void AddPlanCommand(CLI::App& app, Command& selected) {
  CLI::App* command =
      app.add_subcommand("plan", "the layout of a cluster that serves a model best");
  auto flags = std::make_shared<PlanFlags>();
  AddFlags(*command, *flags);
  command->add_option("--layouts", flags->most_layouts, "so many of them are printed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Output");
  command->add_flag("--explain", flags->explain, "say why")->group("Output");
  command
      ->add_option("--svg", flags->svg,
                   "draw to this file: efficiency over stages, and TTFT over length")
      ->type_name("FILE")
      ->group("Output");
  command->add_flag("--json", flags->json, "print one JSON object")->group("Output");
  command->footer(
      "Predicted, not measured: docs/planner.md says from what, and how far predictions were from\n"
      "published results.");
  command->callback([&selected, flags] { selected = [flags] { return RunPlan(*flags); }; });
}

}  // namespace longspan::apps
