// `longspan bench prefill`: prompt tokens per second and their share of the machine's peak.
#include <cmath>
#include <limits>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_flops.h"
#include "apps/bench_run.h"
#include "apps/bench_table.h"
#include "apps/resident_memory.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct PrefillFlags {
  EngineFlags engine;
  std::vector<int64_t> prompt_lengths = {512, 2048, 8192};
  std::vector<int64_t> depths = {0};
  int repeat = 3;
  int memory_samples = 0;
  bool json = false;
};

struct PrefillRow {
  int64_t prompt_length = 0;
  int64_t depth = 0;
  int threads = 0;  // of all ranks
  Spread tokens_per_s;
  double gflops_per_s = 0;  // at the median
  double peak_before = 0;   // GFLOP/s in the compute type
  double peak_after = 0;
  double cpu_share = 1;  // of the worst repeat
  double peak_rss_mib = 0;
  int64_t kv_bytes_per_token = 0;
  int64_t workspace_bytes = 0;
  std::vector<MemorySample> memory;  // of the first repeat

  double first_token_s() const { return static_cast<double>(prompt_length) / tokens_per_s.median; }
  double peak() const { return (peak_before + peak_after) / 2; }
  bool busy() const { return cpu_share < kLeastCpuShare || PeakMoved(peak_before, peak_after); }
};

// Of a GPU unknown here: 'bench ops' measures it.
double Peak(const EngineSetup& setup, int threads) {
  if (setup.on_gpu) return std::numeric_limits<double>::quiet_NaN();
  const PeakGflops peak = MeasurePeakOf(threads);
  return setup.compute == tensor::DType::kBf16 ? peak.bf16 : peak.f32;
}

// Repeats after a warm-up of one chunk, which wakes the caches and touches the first pages.
base::Status MeasureRuns(const PrefillFlags& flags, const EngineSetup& setup,
                         engine::Engine& engine, PrefillRow& row) {
  const auto run = [&](int64_t tokens, uint64_t stream, const StepObserver& observer = {}) {
    return RunPrefill(engine, {BenchRequest(engine, row.depth, tokens, stream)}, observer);
  };
  MemoryCourse memory(row.prompt_length, flags.memory_samples,
                      engine.group_info().kv_bytes_per_token());
  LONGSPAN_RETURN_IF_ERROR(run(std::min(row.prompt_length, setup.chunk_tokens), 0).status());
  std::vector<double> rates;
  for (int repeat = 0; repeat < flags.repeat; ++repeat) {
    LONGSPAN_ASSIGN_OR_RETURN(const PrefillRun result,
                              run(row.prompt_length, static_cast<uint64_t>(repeat) + 1,
                                  [&](const engine::StepRecord& step) { memory.Add(step); }));
    rates.push_back(static_cast<double>(row.prompt_length) / result.seconds);
    // The thread of a stage on a GPU sleeps while that computes.
    if (!setup.on_gpu) row.cpu_share = std::min(row.cpu_share, result.report.cpu_share());
  }
  row.tokens_per_s = SpreadOf(std::move(rates));
  row.memory = memory.samples();
  return base::OkStatus();
}

base::Result<PrefillRow> MeasureRow(const PrefillFlags& flags, const EngineSetup& setup,
                                    int64_t depth, int64_t prompt_length) {
  PrefillRow row{.prompt_length = prompt_length,
                 .depth = depth,
                 .threads = setup.threads * flags.engine.mesh.ranks()};
  row.peak_before = Peak(setup, row.threads);
  ResetPeakRss();
  {
    LONGSPAN_ASSIGN_OR_RETURN(
        const auto engine,
        StartBenchEngine(flags.engine, setup,
                         {.tokens = depth + prompt_length + 1, .synthetic_kv = depth > 0}));
    LONGSPAN_RETURN_IF_ERROR(MeasureRuns(flags, setup, *engine, row));
    row.peak_rss_mib = PeakRssMib();
    row.kv_bytes_per_token = engine->group_info().kv_bytes_per_token();
    for (const runtime::RankReady& rank : engine->group_info().ranks)
      row.workspace_bytes += rank.workspace_bytes;
  }
  row.peak_after = Peak(setup, row.threads);
  row.gflops_per_s = PrefillFlops(setup.model, depth, prompt_length) /
                     static_cast<double>(prompt_length) * row.tokens_per_s.median * 1e-9;
  return row;
}

ordered_json OrNull(double value) {
  if (std::isnan(value)) return nullptr;
  return value;
}

ordered_json ToJson(const MemorySample& sample) {
  return {{"tokens", sample.tokens},
          {"seconds", sample.seconds},
          {"rss_mib", sample.rss_mib},
          {"kv_mib", sample.kv_mib},
          {"rest_mib", sample.rest_mib()}};
}

ordered_json ToJson(const PrefillRow& row) {
  ordered_json memory = ordered_json::array();
  for (const MemorySample& sample : row.memory) memory.push_back(ToJson(sample));
  return {{"prompt_len", row.prompt_length},
          {"depth", row.depth},
          {"threads", row.threads},
          {"first_token_s", row.first_token_s()},
          {"tokens_per_s", row.tokens_per_s.median},
          {"tokens_per_s_min", row.tokens_per_s.min},
          {"tokens_per_s_max", row.tokens_per_s.max},
          {"gflops_per_s", row.gflops_per_s},
          {"peak_gflops_per_s", OrNull(row.peak())},
          {"peak_before_gflops_per_s", OrNull(row.peak_before)},
          {"peak_after_gflops_per_s", OrNull(row.peak_after)},
          {"share_of_peak", OrNull(row.gflops_per_s / row.peak())},
          {"peak_rss_mib", row.peak_rss_mib},
          {"kv_bytes_per_token", row.kv_bytes_per_token},
          {"workspace_bytes", row.workspace_bytes},
          {"memory", std::move(memory)},
          {"cpu_share", row.cpu_share},
          {"busy", row.busy()}};
}

std::string OrDash(double value) { return std::isnan(value) ? "-" : fmt::format("{:.1f}", value); }

void PrintTable(const std::vector<PrefillRow>& rows) {
  BenchTable table({{"prompt", "tokens"},
                    {"depth", "tokens"},
                    {"threads", ""},
                    {"first token", "s"},
                    {"median", "tokens/s"},
                    {"min", "tokens/s"},
                    {"max", "tokens/s"},
                    {"speed", "GFLOP/s"},
                    {"peak", "GFLOP/s"},
                    {"share", "% of peak"},
                    {"CPU", "% had"},
                    {"memory", "MiB RSS"},
                    {"workspace", "MiB"},
                    {"KV", "bytes/token"}});
  for (const PrefillRow& row : rows) {
    table.AddRow({WithThousands(static_cast<double>(row.prompt_length)),
                  WithThousands(static_cast<double>(row.depth)), fmt::format("{}", row.threads),
                  fmt::format("{:.3f}", row.first_token_s()),
                  WithThousands(row.tokens_per_s.median), WithThousands(row.tokens_per_s.min),
                  WithThousands(row.tokens_per_s.max), fmt::format("{:.1f}", row.gflops_per_s),
                  OrDash(row.peak()), OrDash(100 * row.gflops_per_s / row.peak()),
                  fmt::format("{:.1f}", 100 * row.cpu_share), WithThousands(row.peak_rss_mib),
                  fmt::format("{:.1f}", static_cast<double>(row.workspace_bytes) / (1 << 20)),
                  WithThousands(static_cast<double>(row.kv_bytes_per_token))},
                 row.busy() ? "busy" : "");
  }
  fmt::print("{}", table.ToText());
}

// Of every row that has samples, behind the table.
void PrintMemory(const std::vector<PrefillRow>& rows) {
  for (const PrefillRow& row : rows) {
    if (row.memory.empty()) continue;
    BenchTable table({{"computed", "tokens"},
                      {"after", "s"},
                      {"memory", "MiB RSS"},
                      {"KV", "MiB"},
                      {"rest", "MiB"}});
    for (const MemorySample& sample : row.memory)
      table.AddRow({WithThousands(static_cast<double>(sample.tokens)),
                    fmt::format("{:.1f}", sample.seconds), fmt::format("{:.1f}", sample.rss_mib),
                    fmt::format("{:.1f}", sample.kv_mib), fmt::format("{:.1f}", sample.rest_mib())},
                   "");
    fmt::print("\n{}", table.ToText());
  }
}

CommandResult BenchPrefill(const PrefillFlags& flags) {
  if (flags.memory_samples > 0 && flags.depths != std::vector<int64_t>{0})
    return CommandResult::Usage(base::InvalidArgument(
        "--memory-samples follows prompts that are computed from their start: leave --depth out"));
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckEngineFlags(flags.engine));
  const auto setup = ResolveSetup(flags.engine);
  if (!setup.ok()) return setup.status();
  std::vector<PrefillRow> rows;
  for (const int64_t depth : flags.depths) {
    for (const int64_t prompt_length : flags.prompt_lengths) {
      const auto row = MeasureRow(flags, *setup, depth, prompt_length);
      if (!row.ok()) return row.status();
      rows.push_back(*row);
    }
  }
  if (flags.json) {
    ordered_json list = ordered_json::array();
    for (const PrefillRow& row : rows) list.push_back(ToJson(row));
    fmt::print("{}\n", ordered_json{{"rows", std::move(list)}}.dump());
  } else {
    PrintTable(rows);
    PrintMemory(rows);
  }
  return {};
}

}  // namespace

void AddBenchPrefill(CLI::App& bench, Command& selected) {
  CLI::App* command = bench.add_subcommand("prefill", "prompt tokens per second");
  auto flags = std::make_shared<PrefillFlags>();
  command
      ->add_option("--prompt-len", flags->prompt_lengths, "tokens that are computed, one row each")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("TOKENS,...")
      ->capture_default_str()
      ->group("Measurement");
  command
      ->add_option("--depth", flags->depths,
                   "tokens of a synthetic KV prefix before them, which is not computed")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->type_name("TOKENS,...")
      ->capture_default_str()
      ->group("Measurement");
  command->add_option("--repeat", flags->repeat, "runs per row, after a warm-up; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Measurement");
  command
      ->add_option("--memory-samples", flags->memory_samples,
                   "samples of resident memory over each prompt, at equal parts of it")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str()
      ->group("Measurement");
  command->add_flag("--json", flags->json, "one JSON object on the standard output")
      ->group("Measurement");
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "GFLOP/s counts products and attention of the layers (two operations per multiply-add,\n"
      "without the embedding and the head). The peak is a loop of multiply-adds from registers on\n"
      "the same threads, in the compute type, measured before and after each row.");
  command->callback([&selected, flags] { selected = [flags] { return BenchPrefill(*flags); }; });
}

}  // namespace longspan::apps
