// `longspan bench pipeline`: what several ranks of one thread each gain over one of them, and what
// they send each other.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_run.h"
#include "apps/bench_table.h"
#include "apps/exchange_report.h"
#include "apps/ideal_speedup.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct PipelineFlags {
  EngineFlags engine;
  std::vector<int64_t> prompt_lengths = {16384};
  int64_t prompts = 1;
  std::vector<int64_t> one_rank_chunks;  // empty: the pipeline's, twice and four times that
  int repeat = 1;
  bool json = false;
};

// One comparison: the single rank, the pipeline, and the machine before and after.
struct PipelineRun {
  int64_t one_rank_chunk = 0;  // the one that was fastest
  double one_rank_seconds = 0;
  double one_rank_cpu_share = 1;
  double seconds = 0;
  double bubble_share = 0;
  double cpu_share = 1;
  ChunkSums chunks;
  double ratio_before = 0;
  double ratio_after = 0;
  double ideal_speedup = 0;
  std::vector<AxisVolume> volumes;

  double ratio() const { return (ratio_before + ratio_after) / 2; }
  double speedup() const { return one_rank_seconds / seconds; }
  double share_of_ideal() const { return speedup() / ideal_speedup; }
  bool busy() const {
    return PeakMoved(ratio_before, ratio_after) || cpu_share < kLeastCpuShare ||
           one_rank_cpu_share < kLeastCpuShare;
  }
};

struct PipelineRow {
  spec::Mesh mesh;
  int virtual_stages = 1;
  int64_t prompt_length = 0;
  int64_t prompts = 0;
  int64_t chunk_tokens = 0;
  std::vector<PipelineRun> runs;

  // The run with the median share of the ideal among the undisturbed ones, or among all where none
  // is.
  const PipelineRun& Median() const {
    std::vector<const PipelineRun*> chosen;
    for (const PipelineRun& run : runs)
      if (!run.busy()) chosen.push_back(&run);
    if (chosen.empty())
      for (const PipelineRun& run : runs) chosen.push_back(&run);
    std::sort(chosen.begin(), chosen.end(), [](const PipelineRun* a, const PipelineRun* b) {
      return a->share_of_ideal() < b->share_of_ideal();
    });
    return *chosen[(chosen.size() - 1) / 2];
  }
  double tokens() const { return static_cast<double>(prompt_length * prompts); }
};

int Cores() { return static_cast<int>(tensor::AllowedCores().size()); }

// All cores over one core, bf16.
double MeasurePeakRatio() {
  const double one = MeasurePeakOf(1).bf16;
  return MeasurePeakOf(Cores()).bf16 / one;
}

// All prompts through a fresh engine, after a warm-up of two chunks.
base::Result<PrefillRun> Measure(const EngineFlags& flags, const PipelineRow& row) {
  LONGSPAN_ASSIGN_OR_RETURN(const EngineSetup setup, ResolveSetup(flags));
  LONGSPAN_ASSIGN_OR_RETURN(
      const auto engine,
      StartBenchEngine(flags, setup, {.sequences = row.prompts, .tokens = row.prompt_length + 1}));
  const int64_t warm_up = std::min(row.prompt_length, 2 * setup.chunk_tokens);
  LONGSPAN_RETURN_IF_ERROR(RunPrefill(*engine, {BenchRequest(*engine, 0, warm_up, 0)}).status());
  std::vector<engine::Request> requests;
  for (int64_t i = 0; i < row.prompts; ++i)
    requests.push_back(BenchRequest(*engine, 0, row.prompt_length, static_cast<uint64_t>(i) + 1));
  return RunPrefill(*engine, std::move(requests));
}

base::Status MeasureOneRank(const PipelineFlags& flags, const PipelineRow& row, PipelineRun& run) {
  EngineFlags one_rank = flags.engine;
  one_rank.mesh = {};
  one_rank.virtual_stages = 1;
  one_rank.layer_partition.clear();
  one_rank.trace_out.clear();
  std::vector<int64_t> chunks = flags.one_rank_chunks;
  if (chunks.empty()) {
    for (const int64_t factor : {1, 2, 4})
      chunks.push_back(std::min(row.prompt_length, factor * row.chunk_tokens));
    chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  }
  for (const int64_t chunk : chunks) {
    one_rank.chunked_prefill_size = chunk;
    LONGSPAN_ASSIGN_OR_RETURN(const PrefillRun result, Measure(one_rank, row));
    if (run.one_rank_chunk != 0 && result.seconds >= run.one_rank_seconds) continue;
    run.one_rank_chunk = chunk;
    run.one_rank_seconds = result.seconds;
    run.one_rank_cpu_share = result.report.cpu_share();
  }
  return base::OkStatus();
}

base::Result<PipelineRun> MeasureRun(const PipelineFlags& flags, const EngineSetup& setup,
                                     const PipelineRow& row) {
  PipelineRun run;
  run.ratio_before = MeasurePeakRatio();
  LONGSPAN_RETURN_IF_ERROR(MeasureOneRank(flags, row, run));
  LONGSPAN_ASSIGN_OR_RETURN(const PrefillRun result, Measure(flags.engine, row));
  run.ratio_after = MeasurePeakRatio();
  run.seconds = result.seconds;
  run.bubble_share = result.report.bubble_share();
  run.cpu_share = result.report.cpu_share();
  run.chunks = SumChunks(result.report.mean_stage_seconds());
  // Its stages' lanes divide all work.
  run.ideal_speedup =
      row.mesh.stage_ranks() *
      IdealSpeedup(run.chunks, {row.mesh.pp, row.virtual_stages}, run.ratio() / Cores());
  run.volumes = ExchangeVolumes(setup.model,
                                {.mesh = row.mesh,
                                 .loops = row.virtual_stages,
                                 .element = tensor::SizeOf(setup.compute),
                                 .cached = tensor::SizeOf(setup.kv_cache),
                                 .shares_cache = flags.engine.kv_placement == "sharded",
                                 .step_rows = std::min(row.chunk_tokens, row.prompt_length),
                                 .prompt_length = row.prompt_length},
                                result.report.traffic());
  return run;
}

base::Result<PipelineRow> MeasureRow(const PipelineFlags& flags, const EngineSetup& setup,
                                     int64_t prompt_length) {
  PipelineRow row{.mesh = flags.engine.mesh,
                  .virtual_stages = flags.engine.virtual_stages,
                  .prompt_length = prompt_length,
                  .prompts = flags.prompts,
                  .chunk_tokens = setup.chunk_tokens};
  for (int repeat = 0; repeat < flags.repeat; ++repeat) {
    LONGSPAN_ASSIGN_OR_RETURN(PipelineRun run, MeasureRun(flags, setup, row));
    row.runs.push_back(run);
  }
  return row;
}

ordered_json RunToJson(const PipelineRow& row, const PipelineRun& run) {
  return {{"tokens_per_s", row.tokens() / run.seconds},
          {"one_rank_tokens_per_s", row.tokens() / run.one_rank_seconds},
          {"speedup", run.speedup()},
          {"ideal_speedup", run.ideal_speedup},
          {"peak_ratio", run.ratio()},
          {"share_of_ideal", run.share_of_ideal()},
          {"bubble_share", run.bubble_share},
          {"cpu_share", run.cpu_share},
          {"one_rank_cpu_share", run.one_rank_cpu_share},
          {"peak_ratio_before", run.ratio_before},
          {"peak_ratio_after", run.ratio_after},
          {"one_rank_chunk_tokens", run.one_rank_chunk},
          {"sum_t_s", run.chunks.sum},
          {"max_t_s", run.chunks.max},
          {"bytes_per_token", ToJson(run.volumes)},
          {"busy", run.busy()}};
}

ordered_json ToJson(const PipelineRow& row) {
  ordered_json json = {{"pp", row.mesh.pp},
                       {"cp", row.mesh.cp},
                       {"tp", row.mesh.tp},
                       {"ep", row.mesh.ep},
                       {"virtual_stages", row.virtual_stages},
                       {"prompt_len", row.prompt_length},
                       {"prompts", row.prompts},
                       {"chunk_tokens", row.chunk_tokens}};
  json.update(RunToJson(row, row.Median()));
  ordered_json runs = ordered_json::array();
  for (const PipelineRun& run : row.runs) runs.push_back(RunToJson(row, run));
  json["runs"] = std::move(runs);
  return json;
}

void PrintTable(const std::vector<PipelineRow>& rows) {
  BenchTable table({{"stages", ""},
                    {"lanes", ""},
                    {"prompt", "tokens"},
                    {"prompts", ""},
                    {"chunk", "tokens"},
                    {"pipeline", "tokens/s"},
                    {"one rank", "tokens/s"},
                    {"speedup", "x"},
                    {"ideal", "x"},
                    {"share", "% of ideal"},
                    {"bubble", "%"},
                    {"CPU", "% had"},
                    {"peak ratio", "all cores / one"}});
  for (const PipelineRow& row : rows) {
    for (const PipelineRun& run : row.runs) {
      const bool median = &run == &row.Median() && row.runs.size() > 1;
      table.AddRow(
          {fmt::format("{}", row.mesh.pp), fmt::format("{}", row.mesh.stage_ranks()),
           WithThousands(static_cast<double>(row.prompt_length)), fmt::format("{}", row.prompts),
           fmt::format("{}", row.chunk_tokens), WithThousands(row.tokens() / run.seconds),
           WithThousands(row.tokens() / run.one_rank_seconds), fmt::format("{:.3f}", run.speedup()),
           fmt::format("{:.3f}", run.ideal_speedup),
           fmt::format("{:.1f}", 100 * run.share_of_ideal()),
           fmt::format("{:.1f}", 100 * run.bubble_share),
           fmt::format("{:.1f}", 100 * std::min(run.cpu_share, run.one_rank_cpu_share)),
           fmt::format("{:.3f} {:.3f}", run.ratio_before, run.ratio_after)},
          fmt::format("{}{}", run.busy() ? "busy " : "", median ? "median" : ""));
    }
  }
  fmt::print("{}", table.ToText());
  for (const PipelineRow& row : rows) fmt::print("\n{}", ToText(row.Median().volumes));
}

base::Status CheckPipelineFlags(const PipelineFlags& flags) {
  if (flags.engine.threads > 1)
    return base::InvalidArgument("bench pipeline runs one thread per rank: leave --threads out");
  if (flags.engine.mesh.ranks() < 2)
    return base::InvalidArgument(
        "bench pipeline compares several ranks with one: give --pp-size, --cp-size or --tp-size");
  return CheckEngineFlags(flags.engine);
}

CommandResult BenchPipeline(PipelineFlags flags) {
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckPipelineFlags(flags));
  flags.engine.threads = 1;
  const auto setup = ResolveSetup(flags.engine);
  if (!setup.ok()) return setup.status();
  std::vector<PipelineRow> rows;
  for (const int64_t prompt_length : flags.prompt_lengths) {
    auto row = MeasureRow(flags, *setup, prompt_length);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(*row));
  }
  if (flags.json) {
    ordered_json list = ordered_json::array();
    for (const PipelineRow& row : rows) list.push_back(ToJson(row));
    fmt::print("{}\n", ordered_json{{"rows", std::move(list)}}.dump());
  } else {
    PrintTable(rows);
  }
  return {};
}

}  // namespace

void AddBenchPipeline(CLI::App& bench, Command& selected) {
  CLI::App* command =
      bench.add_subcommand("pipeline", "ranks of one thread each against a single one");
  auto flags = std::make_shared<PipelineFlags>();
  flags->engine.mesh.pp = 2;
  command->add_option("--prompt-len", flags->prompt_lengths, "tokens of a prompt, one row each")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("TOKENS,...")
      ->capture_default_str()
      ->group("Measurement");
  command->add_option("--prompts", flags->prompts, "prompts of that length, back to back")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str()
      ->group("Measurement");
  command
      ->add_option("--one-rank-chunk", flags->one_rank_chunks,
                   "chunks that the single rank tries, the fastest counts [the pipeline's, twice "
                   "and four times that]")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->type_name("TOKENS,...")
      ->group("Measurement");
  command->add_option("--repeat", flags->repeat, "comparisons per row; the median one counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Measurement");
  command->add_flag("--json", flags->json, "one JSON object on the standard output")
      ->group("Measurement");
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "Ideal speedup of P stages of V loops and L ranks each = (R / cores) x L P sum t / (sum t +\n"
      "(P-1)/V max t): t is a chunk's time in kernels in the pipeline's own run, the mean over "
      "its\n"
      "ranks (so that L P sum t is the whole work and an uneven layer split counts against us); R\n"
      "is the bf16 peak of all cores\n"
      "over that of one, probed before and after (the mean of both). A row is busy when the two\n"
      "differ by more than 3% or the threads had less than 95% of their cores.");
  command->callback([&selected, flags] { selected = [flags] { return BenchPipeline(*flags); }; });
}

}  // namespace longspan::apps
