// `longspan bench ops`: single ops against what the device can do at most.
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_run.h"
#include "apps/bench_table.h"
#include "apps/op_probes.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct OpsFlags {
  std::string backend = "auto";
  int device = 0;
  int threads = 1;
  int repeat = 5;
  double scale = 1;
  bool json = false;
};

// The published shape of Qwen3-30B-A3B where it has one.
base::Result<std::vector<OpFigure>> Measure(const OpsFlags& flags, OpProbes& probes) {
  std::vector<OpFigure> figures;
  const auto add = [&](base::Result<OpFigure> figure) {
    if (figure.ok()) figures.push_back(*figure);
    return figure.status();
  };
  const auto rows = static_cast<int64_t>(8192 * flags.scale);
  const auto context = static_cast<int64_t>(131072 * flags.scale);
  LONGSPAN_RETURN_IF_ERROR(add(probes.Product(rows, 8192, 8192)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.Product(rows, 2048, 5120)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.Product(rows, 4096, 2048)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.Product(64, 2048, 5120)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.GroupedProduct(rows, 128, 8, 2048, 1536)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.GroupedProduct(rows, 128, 8, 768, 2048)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.GroupedProduct(64, 128, 8, 2048, 1536)));
  LONGSPAN_RETURN_IF_ERROR(add(probes.Attention({.queries = rows, .keys = context})));
  LONGSPAN_RETURN_IF_ERROR(add(probes.Attention({.heads = 32, .queries = rows, .keys = context})));
  LONGSPAN_RETURN_IF_ERROR(add(probes.Attention({.queries = 1, .keys = context})));
  LONGSPAN_RETURN_IF_ERROR(
      add(probes.Attention({.sequences = 32, .queries = 1, .keys = context / 4})));
  return figures;
}

CommandResult BenchOps(const OpsFlags& flags) {
  const auto backend = FindBackend(flags.backend);
  if (!backend.ok()) return backend.status();
  auto probes =
      OpProbes::Create(**backend, {.threads = flags.threads, .device = flags.device}, flags.repeat);
  if (!probes.ok()) return probes.status();
  const auto copied = MeasureCopyRate(**backend, (*probes)->queue());
  if (!copied.ok()) return copied.status();
  const auto figures = Measure(flags, **probes);
  if (!figures.ok()) return figures.status();
  BenchTable table(
      {{"op", ""}, {"shape", ""}, {"time", "us"}, {"speed", "TFLOP/s"}, {"memory", "GB/s"}});
  ordered_json list = ordered_json::array();
  for (const OpFigure& figure : *figures) {
    const double tflops = figure.flops / figure.seconds * 1e-12;
    const double gigabytes = figure.bytes / figure.seconds * 1e-9;
    table.AddRow({figure.op, figure.shape, WithThousands(figure.seconds * 1e6),
                  fmt::format("{:.1f}", tflops), WithThousands(gigabytes)});
    list.push_back({{"op", figure.op},
                    {"shape", figure.shape},
                    {"seconds", figure.seconds},
                    {"tflops_per_s", tflops},
                    {"gb_per_s", gigabytes}});
  }
  if (flags.json) {
    fmt::print("{}\n", ordered_json{{"copy_gb_per_s", *copied * 1e-9}, {"ops", list}}.dump());
  } else {
    if (*copied > 0)
      table.AddRow({"copy", "device to device", "", "", WithThousands(*copied * 1e-9)});
    fmt::print("{}", table.ToText());
  }
  return {};
}

}  // namespace

void AddBenchOps(CLI::App& bench, Command& selected) {
  CLI::App* command = bench.add_subcommand("ops", "single ops");
  auto flags = std::make_shared<OpsFlags>();
  command->add_option("--backend", flags->backend, "where to compute")
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda"}))
      ->capture_default_str();
  command->add_option("--gpu-id", flags->device, "which GPU")->capture_default_str();
  command->add_option("--threads", flags->threads, "compute threads")->capture_default_str();
  command->add_option("--repeat", flags->repeat, "timed runs per op; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--scale", flags->scale, "of rows and contexts: 1 is for a GPU, 0.01 for a CPU")
      ->check(CLI::Range(0.001, 8.0))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "one JSON object on the standard output");
  command->footer(
      "Random numbers in bf16. TFLOP/s counts two operations per multiply-add, GB/s what must be\n"
      "read and written at least. The first product and the copy are the device's ceilings.");
  command->callback([&selected, flags] { selected = [flags] { return BenchOps(*flags); }; });
}

}  // namespace longspan::apps
