// `longspan score`: how likely a text is, and the logits behind it.
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/engine_flags.h"
#include "apps/engine_setup.h"
#include "apps/input_files.h"
#include "apps/node_setup.h"
#include "apps/progress_bar.h"
#include "checkpoint/safetensors.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct ScoreFlags {
  EngineFlags engine;
  std::string ids_file;
  std::string positions = "all";
  std::string logits_out;
  std::string hidden_out;
  bool json = false;
};

// "all", "last", or a list in which negative numbers count from the end; ascending, each once.
base::Result<std::vector<int64_t>> ParsePositions(const std::string& text, int64_t tokens) {
  std::vector<int64_t> positions;
  if (text == "all") {
    positions.resize(static_cast<size_t>(tokens));
    std::iota(positions.begin(), positions.end(), int64_t{0});
    return positions;
  }
  if (text == "last") return std::vector<int64_t>{tokens - 1};
  std::set<int64_t> chosen;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    size_t used = 0;
    int64_t position = 0;
    try {
      position = std::stoll(part, &used);
    } catch (const std::logic_error&) {
      used = 0;
    }
    if (used == 0 || used != part.size())
      return base::InvalidArgument(
          "--positions '{}' must be all, last, or numbers separated by commas", text);
    const int64_t absolute = position < 0 ? position + tokens : position;
    if (absolute < 0 || absolute >= tokens)
      return base::InvalidArgument("position {} is outside the {} tokens", position, tokens);
    chosen.insert(absolute);
  }
  if (chosen.empty()) return base::InvalidArgument("--positions names no position");
  return std::vector<int64_t>(chosen.begin(), chosen.end());
}

class ScoreSink : public engine::OutputSink {
 public:
  ScoreSink(int64_t tokens, int layers)
      : logprobs_(static_cast<size_t>(tokens), std::numeric_limits<double>::quiet_NaN()),
        hidden_(static_cast<size_t>(layers) + 1) {}

  void OnPrefill(plan::SequenceId /*sequence*/, int64_t done, int64_t total) override {
    if (done < total) progress_.Tokens(done, total);
  }
  void OnScore(plan::SequenceId /*sequence*/, engine::ScoreOutput score) override {
    if (score.position + 1 < static_cast<int64_t>(logprobs_.size()))
      logprobs_[static_cast<size_t>(score.position) + 1] = score.next_logprob;
    positions_.push_back(static_cast<int32_t>(score.position));
    logits_.insert(logits_.end(), score.logits.begin(), score.logits.end());
  }
  void OnHidden(plan::SequenceId /*sequence*/, int32_t depth, std::vector<float> values) override {
    hidden_.at(static_cast<size_t>(depth)) = std::move(values);
  }
  void OnFinish(plan::SequenceId /*sequence*/, engine::FinishReason /*reason*/,
                const engine::FinishInfo& /*info*/) override {
    progress_.Clear();
  }

  base::Status WriteLogits(const std::string& path) const {
    const auto rows = static_cast<int64_t>(positions_.size());
    const int64_t vocab = rows == 0 ? 0 : static_cast<int64_t>(logits_.size()) / rows;
    const std::array<checkpoint::NamedTensor, 2> tensors = {{
        {"logits", tensor::ConstView(logits_.data(), tensor::DType::kF32, {rows, vocab})},
        {"positions", tensor::ConstView(positions_.data(), tensor::DType::kI32, {rows})},
    }};
    return checkpoint::WriteSafetensors(path, tensors);
  }

  base::Status WriteHidden(const std::string& path) const {
    std::vector<float> values;
    for (const auto& row : hidden_) values.insert(values.end(), row.begin(), row.end());
    const auto depths = static_cast<int64_t>(hidden_.size());
    const std::array<checkpoint::NamedTensor, 1> tensors = {{
        {"hidden_last", tensor::ConstView(values.data(), tensor::DType::kF32,
                                          {depths, static_cast<int64_t>(values.size()) / depths})},
    }};
    return checkpoint::WriteSafetensors(path, tensors);
  }

  // Over the tokens whose probability was computed; NaN where there are none.
  double Perplexity() const {
    double sum = 0;
    int64_t count = 0;
    for (const double logprob : logprobs_) {
      if (std::isnan(logprob)) continue;
      sum += logprob;
      ++count;
    }
    return count == 0 ? std::numeric_limits<double>::quiet_NaN()
                      : std::exp(-sum / static_cast<double>(count));
  }

  ordered_json ToJson() const {
    ordered_json logprobs = ordered_json::array();
    const auto number = [](double value) -> ordered_json {
      if (std::isnan(value)) return nullptr;
      return value;
    };
    for (const double logprob : logprobs_) logprobs.push_back(number(logprob));
    return {{"tokens", logprobs_.size()},
            {"logprobs", std::move(logprobs)},
            {"perplexity", number(Perplexity())}};
  }

 private:
  std::vector<double> logprobs_;  // NaN where not computed
  std::vector<int32_t> positions_;
  std::vector<float> logits_;
  std::vector<std::vector<float>> hidden_;
  ProgressBar progress_;
};

base::Status WriteFiles(const ScoreFlags& flags, const ScoreSink& sink) {
  if (!flags.logits_out.empty()) LONGSPAN_RETURN_IF_ERROR(sink.WriteLogits(flags.logits_out));
  if (!flags.hidden_out.empty()) LONGSPAN_RETURN_IF_ERROR(sink.WriteHidden(flags.hidden_out));
  return base::OkStatus();
}

CommandResult Score(const ScoreFlags& flags) {
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckEngineFlags(flags.engine));
  const auto setup = ResolveSetup(flags.engine);
  if (!setup.ok()) return setup.status();
  if (flags.engine.node_rank > 0) return RunNode(flags.engine, *setup);
  auto lists = ReadIdLists(flags.ids_file);
  if (!lists.ok()) return lists.status();
  if (lists->size() != 1)
    return base::InvalidArgument("'{}' holds {} lists of ids, score takes one", flags.ids_file,
                                 lists->size());
  const auto tokens = static_cast<int64_t>(lists->front().size());
  if (tokens == 0)
    return base::InvalidArgument("'{}' holds no ids: give at least one", flags.ids_file);
  auto positions = ParsePositions(flags.positions, tokens);
  if (!positions.ok()) return CommandResult::Usage(positions.status());
  if (!flags.hidden_out.empty() && positions->back() != tokens - 1)
    return CommandResult::Usage(
        base::InvalidArgument("--hidden-out reports the last position: name it in --positions"));

  auto engine = StartEngine(flags.engine, *setup);
  if (!engine.ok()) return engine.status();
  ScoreSink sink(tokens, setup->model.layers());
  const auto submitted = (*engine)->Submit({.prompt = std::move(lists->front()),
                                            .max_tokens = 0,
                                            .score_positions = std::move(*positions),
                                            .return_logits = !flags.logits_out.empty(),
                                            .return_hidden = !flags.hidden_out.empty()},
                                           &sink);
  if (!submitted.ok()) return submitted.status();
  base::Status status = (*engine)->RunUntilIdle();
  if (status.ok()) status = WriteFiles(flags, sink);
  if (!status.ok()) return status;
  if (flags.json) {
    fmt::print("{}\n", sink.ToJson().dump());
  } else {
    fmt::print("{} tokens, perplexity {:.4f}\n", tokens, sink.Perplexity());
  }
  return {};
}

}  // namespace

void AddScoreCommand(CLI::App& app, Command& selected) {
  CLI::App* command = app.add_subcommand("score", "log-probabilities and logits of given tokens");
  auto flags = std::make_shared<ScoreFlags>();
  command
      ->add_option("--ids-file", flags->ids_file,
                   "a JSON array of token ids; - for the standard input")
      ->required()
      ->group("Input");
  command
      ->add_option("--positions", flags->positions,
                   "whose logits: all, last, or numbers like 0,5,-1")
      ->capture_default_str()
      ->group("Input");
  command
      ->add_option("--logits-out", flags->logits_out,
                   "safetensors: logits f32 [positions, vocab], positions i32")
      ->type_name("FILE")
      ->group("Output");
  command
      ->add_option("--hidden-out", flags->hidden_out,
                   "safetensors: hidden_last f32 [layers + 1, hidden] of the last position")
      ->type_name("FILE")
      ->group("Output");
  command->add_flag("--json", flags->json, R"(print {"tokens","logprobs":[null,...],"perplexity"})")
      ->group("Output");
  AddEngineFlags(*command, flags->engine);
  command->callback([&selected, flags] { selected = [flags] { return Score(*flags); }; });
}

}  // namespace longspan::apps
