// `longspan bench ops`: single ops against what the machine can do at most.
#include <cmath>
#include <limits>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_run.h"
#include "apps/bench_table.h"
#include "apps/model_location.h"
#include "apps/model_ops.h"
#include "model/architecture.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct OpsFlags {
  std::string backend = "auto";
  std::string model_path;
  std::string dtype = "bf16";
  int device = 0;
  int threads = 1;
  int repeat = 5;
  int64_t rows = 512;
  int64_t keys = 4096;
  double scale = 1;
  bool json = false;

  tensor::DType type() const {
    return dtype == "bf16" ? tensor::DType::kBf16 : tensor::DType::kF32;
  }
};

// What the same run can reach at most; unknown where the device tells by its ops alone.
struct Ceilings {
  double gflops = kUnknown;
  double memory_gbytes = kUnknown;
};

struct OpsReport {
  std::vector<OpFigure> figures;
  Ceilings before;
  Ceilings after;
  double copy_gbytes = 0;  // within a device

  double peak_gflops() const { return (before.gflops + after.gflops) / 2; }
  double memory_gbytes() const { return (before.memory_gbytes + after.memory_gbytes) / 2; }
  bool busy() const { return PeakMoved(before.gflops, after.gflops); }
};

double Gflops(const OpFigure& figure) { return figure.flops / figure.seconds * 1e-9; }
double Gbytes(const OpFigure& figure) { return figure.bytes / figure.seconds * 1e-9; }

base::Result<std::vector<OpProbe>> ChooseOps(const OpsFlags& flags, bool on_host) {
  if (!on_host && flags.model_path.empty()) return LargeOps(flags.scale);
  LONGSPAN_ASSIGN_OR_RETURN(const auto folder, ResolveModel(flags.model_path));
  LONGSPAN_ASSIGN_OR_RETURN(const spec::ModelSpec model, model::LoadModelSpec(folder));
  return ModelOps(model, {.slices = 1, .rows = flags.rows, .keys = flags.keys});
}

base::Result<Ceilings> MeasureCeilings(const OpsFlags& flags, bool on_host) {
  if (!on_host) return Ceilings{};
  const PeakGflops peak = MeasurePeakOf(flags.threads);
  LONGSPAN_ASSIGN_OR_RETURN(const double memory, MeasureReadRateOf(flags.threads));
  return Ceilings{.gflops = flags.type() == tensor::DType::kBf16 ? peak.bf16 : peak.f32,
                  .memory_gbytes = memory * 1e-9};
}

base::Result<OpsReport> Measure(const OpsFlags& flags, const ops::Backend& backend) {
  OpsReport report;
  const bool on_host = backend.is_on_host();
  LONGSPAN_ASSIGN_OR_RETURN(const auto probes, ChooseOps(flags, on_host));
  LONGSPAN_ASSIGN_OR_RETURN(report.before, MeasureCeilings(flags, on_host));
  {
    ops::QueueOptions queue = {.threads = flags.threads, .device = flags.device};
    if (on_host) queue.cores = tensor::CoresOfRank(0, 1, flags.threads);
    LONGSPAN_ASSIGN_OR_RETURN(
        const auto bench,
        OpBench::Create(backend, queue, {.type = flags.type(), .repeat = flags.repeat}));
    LONGSPAN_ASSIGN_OR_RETURN(const double copied, MeasureCopyRate(backend, bench->queue()));
    report.copy_gbytes = copied * 1e-9;
    for (const OpProbe& probe : probes) {
      LONGSPAN_ASSIGN_OR_RETURN(OpFigure figure, probe(*bench));
      report.figures.push_back(std::move(figure));
    }
  }
  LONGSPAN_ASSIGN_OR_RETURN(report.after, MeasureCeilings(flags, on_host));
  return report;
}

ordered_json OrNull(double value) {
  if (std::isnan(value)) return nullptr;
  return value;
}

ordered_json ToJson(const OpsReport& report) {
  ordered_json list = ordered_json::array();
  for (const OpFigure& figure : report.figures) {
    list.push_back({{"op", figure.op},
                    {"shape", figure.shape},
                    {"seconds", figure.seconds},
                    {"gflops_per_s", Gflops(figure)},
                    {"tflops_per_s", Gflops(figure) * 1e-3},
                    {"share_of_peak", OrNull(Gflops(figure) / report.peak_gflops())},
                    {"gb_per_s", Gbytes(figure)},
                    {"share_of_memory", OrNull(Gbytes(figure) / report.memory_gbytes())}});
  }
  return {{"copy_gb_per_s", report.copy_gbytes},
          {"peak_gflops_per_s", OrNull(report.peak_gflops())},
          {"peak_before_gflops_per_s", OrNull(report.before.gflops)},
          {"peak_after_gflops_per_s", OrNull(report.after.gflops)},
          {"memory_gb_per_s", OrNull(report.memory_gbytes())},
          {"busy", report.busy()},
          {"rows", list},
          {"ops", list}};  // the same, by the name that was there first
}

std::string Percent(double share) { return fmt::format("{:.0f}", 100 * share); }

void PrintDeviceTable(const OpsReport& report) {
  BenchTable table(
      {{"op", ""}, {"shape", ""}, {"time", "us"}, {"speed", "TFLOP/s"}, {"memory", "GB/s"}});
  for (const OpFigure& figure : report.figures)
    table.AddRow({figure.op, figure.shape, WithThousands(figure.seconds * 1e6),
                  fmt::format("{:.1f}", Gflops(figure) * 1e-3), WithThousands(Gbytes(figure))});
  if (report.copy_gbytes > 0)
    table.AddRow({"copy", "device to device", "", "", WithThousands(report.copy_gbytes)});
  fmt::print("{}", table.ToText());
}

void PrintHostTable(const OpsReport& report) {
  BenchTable table({{"op", ""},
                    {"shape", ""},
                    {"time", "us"},
                    {"speed", "GFLOP/s"},
                    {"share", "% of peak"},
                    {"data", "GB/s"},
                    {"share", "% of memory"}});
  for (const OpFigure& figure : report.figures) {
    const bool computes = figure.flops > 0;
    table.AddRow(
        {figure.op, figure.shape, fmt::format("{:.2f}", figure.seconds * 1e6),
         computes ? fmt::format("{:.1f}", Gflops(figure)) : "-",
         computes ? Percent(Gflops(figure) / report.peak_gflops()) : "-",
         fmt::format("{:.1f}", Gbytes(figure)), Percent(Gbytes(figure) / report.memory_gbytes())},
        report.busy() ? "busy" : "");
  }
  fmt::print("{}\npeak {:.1f} GFLOP/s, memory {:.1f} GB/s\n", table.ToText(), report.peak_gflops(),
             report.memory_gbytes());
}

CommandResult BenchOps(const OpsFlags& flags) {
  if (flags.rows > flags.keys)
    return CommandResult::Usage(
        base::InvalidArgument("--rows {} end a prompt of --context {} tokens: it must have as many",
                              flags.rows, flags.keys));
  const auto backend = FindBackend(flags.backend);
  if (!backend.ok()) return backend.status();
  const auto report = Measure(flags, **backend);
  if (!report.ok()) return report.status();
  if (flags.json)
    fmt::print("{}\n", ToJson(*report).dump());
  else if ((*backend)->is_on_host())
    PrintHostTable(*report);
  else
    PrintDeviceTable(*report);
  return {};
}

}  // namespace

void AddBenchOps(CLI::App& bench, Command& selected) {
  CLI::App* command = bench.add_subcommand("ops", "single ops");
  auto flags = std::make_shared<OpsFlags>();
  const auto option = [&](const char* name, auto& value, const char* about) {
    return command->add_option(name, value, about)->capture_default_str();
  };
  option(
      "--model-path,--model", flags->model_path,
      "whose shapes: a folder with config.json. Default: the embedded model; on a GPU, the large "
      "ops of Qwen3-30B-A3B")
      ->type_name("DIR");
  option("--backend", flags->backend, "where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda"}));
  option("--gpu-id", flags->device, "which GPU");
  option("--threads", flags->threads, "compute threads");
  option("--dtype", flags->dtype, "of activations, weights and caches")
      ->check(CLI::IsMember({"bf16", "f32"}));
  option("--rows", flags->rows, "tokens of a prefill step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  option("--context", flags->keys, "tokens that its last row, and a decoding row, attend to")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  option("--repeat", flags->repeat, "timed runs per op; the median counts")
      ->check(CLI::Range(1, 1000));
  option("--scale", flags->scale, "of the large ops' rows and contexts")
      ->check(CLI::Range(0.001, 8.0));
  command->add_flag("--json", flags->json, "one JSON object on the standard output");
  command->footer(
      "Random numbers. GFLOP/s counts two operations per multiply-add, GB/s what must be read and\n"
      "written at least. On a CPU both stand beside what the same threads reach at most, probed\n"
      "before and after: multiply-adds from registers, and reading a table that no cache holds. "
      "What\n"
      "a step finds in the caches is in the caches here: ops on rows may exceed the memory's "
      "rate.\n"
      "On a GPU the first product and the copy are the ceilings.");
  command->callback([&selected, flags] { selected = [flags] { return BenchOps(*flags); }; });
}

}  // namespace longspan::apps
