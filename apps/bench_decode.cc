// `longspan bench decode`: generated tokens per second.
#include <algorithm>
#include <memory>
#include <unordered_map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/bench_flops.h"
#include "apps/bench_run.h"
#include "apps/bench_table.h"
#include "base/clock.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct DecodeFlags {
  EngineFlags engine;
  std::vector<int64_t> prompt_lengths = {512};
  std::vector<int64_t> batches = {1};
  int64_t max_tokens = 64;
  int repeat = 3;
  bool json = false;
};

struct DecodeRow {
  int64_t prompt_length = 0;
  int64_t batch = 0;
  int threads = 0;      // of all ranks
  Spread tokens_per_s;  // of all sequences together
  double bytes_per_step = 0;
  double memory_before = 0;  // bytes per second that the threads read; 0: not measured
  double memory_after = 0;

  double steps_per_s() const { return tokens_per_s.median / static_cast<double>(batch); }
  double ms_per_token() const { return 1e3 / steps_per_s(); }
  double gbytes_per_s() const { return bytes_per_step * steps_per_s() * 1e-9; }
  double memory_gbytes_per_s() const { return (memory_before + memory_after) / 2 * 1e-9; }
  double share_of_memory() const { return gbytes_per_s() / memory_gbytes_per_s(); }
};

// Tokens and their time while the whole batch decodes: from the moment when every sequence has its
// first token to the end of the first one that finishes.
class DecodeSink : public engine::OutputSink {
 public:
  explicit DecodeSink(int64_t batch) : batch_(batch) {}

  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput& /*token*/) override {
    if (finished_) return true;
    const bool whole_batch = started_ == batch_;
    if (++tokens_of_[sequence] == 1) ++started_;
    const auto now = base::SteadyClock().Now();
    if (whole_batch) {
      ++tokens_;
      end_ = now;
    } else {
      begin_ = now;
    }
    return true;
  }
  void OnFinish(plan::SequenceId /*sequence*/, engine::FinishReason /*reason*/,
                const engine::FinishInfo& /*info*/) override {
    finished_ = true;
  }

  double tokens_per_s() const {
    return static_cast<double>(tokens_) / base::Seconds(end_ - begin_);
  }

 private:
  int64_t batch_;
  int64_t started_ = 0;
  bool finished_ = false;
  std::unordered_map<plan::SequenceId, int64_t> tokens_of_;
  int64_t tokens_ = 0;
  base::Clock::Duration begin_{};
  base::Clock::Duration end_{};
};

base::Result<double> RunDecode(engine::Engine& engine, const DecodeRow& row, int64_t max_tokens) {
  DecodeSink sink(row.batch);
  for (int64_t i = 0; i < row.batch; ++i) {
    // Only the prompt's last token is computed: all sequences begin to decode in the first step.
    engine::Request request =
        BenchRequest(engine, row.prompt_length - 1, 1, static_cast<uint64_t>(i));
    request.max_tokens = max_tokens;
    LONGSPAN_RETURN_IF_ERROR(engine.Submit(std::move(request), &sink).status());
  }
  LONGSPAN_RETURN_IF_ERROR(engine.RunUntilIdle());
  return sink.tokens_per_s();
}

// Of a GPU not known here.
base::Result<double> MemoryRate(const EngineSetup& setup, int threads) {
  if (setup.on_gpu) return 0.0;
  return MeasureReadRateOf(threads);
}

base::Result<DecodeRow> MeasureRow(const DecodeFlags& flags, EngineSetup setup,
                                   int64_t prompt_length, int64_t batch) {
  DecodeRow row{.prompt_length = prompt_length,
                .batch = batch,
                .threads = setup.threads * flags.engine.mesh.ranks()};
  setup.chunk_tokens = std::max(setup.chunk_tokens, batch);
  LONGSPAN_ASSIGN_OR_RETURN(row.memory_before, MemoryRate(setup, row.threads));
  {
    LONGSPAN_ASSIGN_OR_RETURN(const auto engine,
                              StartBenchEngine(flags.engine, setup,
                                               {.sequences = batch,
                                                .tokens = prompt_length + flags.max_tokens,
                                                .synthetic_kv = true}));
    LONGSPAN_RETURN_IF_ERROR(
        RunDecode(*engine, row, std::min<int64_t>(flags.max_tokens, 8)).status());
    std::vector<double> rates;
    for (int repeat = 0; repeat < flags.repeat; ++repeat) {
      LONGSPAN_ASSIGN_OR_RETURN(const double rate, RunDecode(*engine, row, flags.max_tokens));
      rates.push_back(rate);
    }
    row.tokens_per_s = SpreadOf(std::move(rates));
  }
  LONGSPAN_ASSIGN_OR_RETURN(row.memory_after, MemoryRate(setup, row.threads));
  row.bytes_per_step = DecodeBytes(
      setup.model,
      {.batch = batch,
       .context = static_cast<double>(prompt_length) + static_cast<double>(flags.max_tokens) / 2,
       .weights = setup.compute,
       .kv_cache = setup.kv_cache});
  return row;
}

ordered_json ToJson(const DecodeRow& row) {
  ordered_json json = {{"prompt_len", row.prompt_length},
                       {"batch", row.batch},
                       {"threads", row.threads},
                       {"tokens_per_s", row.tokens_per_s.median},
                       {"tokens_per_s_min", row.tokens_per_s.min},
                       {"tokens_per_s_max", row.tokens_per_s.max},
                       {"ms_per_token", row.ms_per_token()},
                       {"gbytes_per_s", row.gbytes_per_s()},
                       {"memory_gbytes_per_s", nullptr},
                       {"share_of_memory", nullptr}};
  if (row.memory_before > 0) {
    json["memory_gbytes_per_s"] = row.memory_gbytes_per_s();
    json["share_of_memory"] = row.share_of_memory();
  }
  return json;
}

void PrintTable(const std::vector<DecodeRow>& rows) {
  BenchTable table({{"prompt", "tokens"},
                    {"batch", "sequences"},
                    {"threads", ""},
                    {"median", "tokens/s"},
                    {"min", "tokens/s"},
                    {"max", "tokens/s"},
                    {"latency", "ms/token"},
                    {"reads", "GB/s"},
                    {"memory", "GB/s"},
                    {"share", "% of memory"}});
  for (const DecodeRow& row : rows) {
    const bool measured = row.memory_before > 0;
    table.AddRow(
        {WithThousands(static_cast<double>(row.prompt_length)), fmt::format("{}", row.batch),
         fmt::format("{}", row.threads), fmt::format("{:.1f}", row.tokens_per_s.median),
         fmt::format("{:.1f}", row.tokens_per_s.min), fmt::format("{:.1f}", row.tokens_per_s.max),
         fmt::format("{:.2f}", row.ms_per_token()), fmt::format("{:.1f}", row.gbytes_per_s()),
         measured ? fmt::format("{:.1f}", row.memory_gbytes_per_s()) : "-",
         measured ? fmt::format("{:.0f}", 100 * row.share_of_memory()) : "-"},
        measured && PeakMoved(row.memory_before, row.memory_after) ? "busy" : "");
  }
  fmt::print("{}", table.ToText());
}

CommandResult BenchDecode(const DecodeFlags& flags) {
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckEngineFlags(flags.engine));
  const auto setup = ResolveSetup(flags.engine);
  if (!setup.ok()) return setup.status();
  std::vector<DecodeRow> rows;
  for (const int64_t prompt_length : flags.prompt_lengths) {
    for (const int64_t batch : flags.batches) {
      const auto row = MeasureRow(flags, *setup, prompt_length, batch);
      if (!row.ok()) return row.status();
      rows.push_back(*row);
    }
  }
  if (flags.json) {
    ordered_json list = ordered_json::array();
    for (const DecodeRow& row : rows) list.push_back(ToJson(row));
    fmt::print("{}\n", ordered_json{{"rows", std::move(list)}}.dump());
  } else {
    PrintTable(rows);
  }
  return {};
}

}  // namespace

void AddBenchDecode(CLI::App& bench, Command& selected) {
  CLI::App* command = bench.add_subcommand("decode", "generated tokens per second");
  auto flags = std::make_shared<DecodeFlags>();
  const auto list = [&](const char* name, std::vector<int64_t>& values, const char* about) {
    return command->add_option(name, values, about)
        ->delimiter(',')
        ->capture_default_str()
        ->group("Measurement");
  };
  list("--prompt-len", flags->prompt_lengths,
       "context before the first generated token, not computed")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("TOKENS,...");
  list("--batch", flags->batches, "sequences that decode together")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->type_name("N,...");
  command->add_option("--max-tokens", flags->max_tokens, "tokens that each sequence generates")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20))
      ->capture_default_str()
      ->group("Measurement");
  command->add_option("--repeat", flags->repeat, "runs per row, after a warm-up; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str()
      ->group("Measurement");
  command->add_flag("--json", flags->json, "one JSON object on the standard output")
      ->group("Measurement");
  AddEngineFlags(*command, flags->engine);
  command->footer(
      "tokens/s is over all sequences, ms/token the time between two tokens of one of them. GB/s "
      "is\n"
      "what a step must read at least: the weights once (of the experts as many as the batch is\n"
      "expected to choose) and every sequence's keys and values; beside it what the same threads\n"
      "read of a table that no cache holds, probed before and after each row.");
  command->callback([&selected, flags] { selected = [flags] { return BenchDecode(*flags); }; });
}

}  // namespace longspan::apps
