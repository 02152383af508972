// `longspan generate`: prompts in, text out.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/counters_json.h"
#include "apps/engine_flags.h"
#include "apps/engine_setup.h"
#include "apps/generate_output.h"
#include "apps/input_files.h"
#include "apps/node_setup.h"
#include "apps/pipeline_report.h"

namespace longspan::apps {
namespace {

using nlohmann::ordered_json;

struct GenerateFlags {
  EngineFlags engine;
  std::string prompt;
  std::string prompt_file;
  std::string ids_file;
  std::string chat;
  std::string question;
  std::string document;
  int64_t max_tokens = 128;
  spec::SamplingSpec sampling;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  int logprobs = -1;
  bool ignore_eos = false;
  bool sequential = false;
  bool json = false;
};

// The prompts, and the tokenizer where there is one.
struct Prompts {
  std::unique_ptr<const text::Tokenizer> tokenizer;
  std::vector<std::vector<int32_t>> ids;
};

// What is to be tokenised, of any source but ids.
base::Result<std::string> PromptText(const GenerateFlags& flags, bool has_prompt,
                                     const std::filesystem::path& model_dir) {
  if (has_prompt) return flags.prompt;
  if (!flags.prompt_file.empty()) return ReadInputFile(flags.prompt_file);
  if (!flags.chat.empty()) {
    LONGSPAN_ASSIGN_OR_RETURN(const std::string conversation, ReadInputFile(flags.chat));
    return RenderChat(model_dir, conversation);
  }
  std::string document;
  if (!flags.document.empty()) {
    LONGSPAN_ASSIGN_OR_RETURN(document, ReadInputFile(flags.document));
  }
  return RenderQuestion(model_dir, document, flags.question);
}

base::Result<Prompts> ReadPrompts(const GenerateFlags& flags, bool has_prompt,
                                  const std::filesystem::path& model_dir) {
  Prompts prompts;
  auto tokenizer = text::Tokenizer::Load(model_dir);
  // Ids need no tokenizer; without one there is no text in the output.
  const bool needed = flags.ids_file.empty() || !flags.stop.empty();
  if (!tokenizer.ok() && (needed || tokenizer.status().code() != base::StatusCode::kNotFound))
    return tokenizer.status();
  if (tokenizer.ok()) prompts.tokenizer = std::move(*tokenizer);
  if (!flags.ids_file.empty()) {
    LONGSPAN_ASSIGN_OR_RETURN(prompts.ids, ReadIdLists(flags.ids_file));
    return prompts;
  }
  LONGSPAN_ASSIGN_OR_RETURN(const std::string text, PromptText(flags, has_prompt, model_dir));
  const bool plain = flags.chat.empty() && flags.question.empty();
  LONGSPAN_ASSIGN_OR_RETURN(auto ids, prompts.tokenizer->Encode(text, {.add_special = plain}));
  prompts.ids.push_back(std::move(ids));
  return prompts;
}

base::Status RunPrompts(const GenerateFlags& flags, Prompts& prompts, engine::Engine& engine,
                        GenerateSink& sink) {
  for (size_t i = 0; i < prompts.ids.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts.ids[i].size());
    LONGSPAN_ASSIGN_OR_RETURN(const auto id, engine.Submit({.prompt = std::move(prompts.ids[i]),
                                                            .max_tokens = flags.max_tokens,
                                                            .sampling = flags.sampling,
                                                            .stop_tokens = flags.stop_ids,
                                                            .ignore_end_tokens = flags.ignore_eos},
                                                           &sink));
    sink.Expect(id, i, length);
    if (flags.sequential) LONGSPAN_RETURN_IF_ERROR(engine.RunUntilIdle());
  }
  return engine.RunUntilIdle();
}

void PrintOutputs(const GenerateFlags& flags, const GenerateSink& sink,
                  const PipelineReport& report, const engine::Engine& engine) {
  if (flags.json) {
    ordered_json outputs = ordered_json::array();
    for (const GeneratedOutput& output : sink.outputs())
      outputs.push_back(output.ToJson(flags.logprobs >= 0));
    ordered_json pipeline = report.ToJson();
    pipeline["counters"] = ToJson(engine.counters());
    fmt::print(
        "{}\n",
        ordered_json{{"outputs", std::move(outputs)}, {"pipeline", std::move(pipeline)}}.dump());
    return;
  }
  if (sink.outputs().size() == 1) {
    // The text has been printed as it came.
    fmt::print("\n");
  } else {
    for (size_t i = 0; i < sink.outputs().size(); ++i)
      fmt::print("--- {} ---\n{}\n", i, sink.outputs()[i].text);
  }
  for (const GeneratedOutput& output : sink.outputs()) {
    const engine::FinishInfo& info = output.info;
    const int64_t computed = output.prompt_tokens - info.cached_tokens;
    WriteMessage(fmt::format(
        "{} prompt tokens, {} of them cached, first token after {:.2f} s ({:.0f} tokens/s); {} "
        "tokens generated\n",
        output.prompt_tokens, info.cached_tokens, info.first_token_s,
        static_cast<double>(computed) / info.first_token_s, output.ids.size()));
  }
}

CommandResult Generate(const GenerateFlags& flags, bool has_prompt) {
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckEngineFlags(flags.engine));
  LONGSPAN_RETURN_USAGE_IF_ERROR(spec::CheckSampling(flags.sampling));
  const int sources = int{has_prompt} + int{!flags.prompt_file.empty()} +
                      int{!flags.ids_file.empty()} + int{!flags.chat.empty()} +
                      int{!flags.question.empty()};
  if (sources != 1)
    return CommandResult::Usage(base::InvalidArgument(
        "give exactly one of --prompt, --prompt-file, --ids-file, --chat and --ask"));
  const auto setup = ResolveSetup(flags.engine);
  if (!setup.ok()) return setup.status();
  if (flags.engine.node_rank > 0) return RunNode(flags.engine, *setup);
  auto prompts = ReadPrompts(flags, has_prompt, setup->model_dir);
  if (!prompts.ok()) return prompts.status();

  ProgressBar loading;
  // All prompts are there at once: none is to be refused for want of a place in the queue.
  EngineFlags engine_flags = flags.engine;
  engine_flags.max_queued_requests =
      std::max(engine_flags.max_queued_requests, static_cast<int64_t>(prompts->ids.size()));
  const auto engine = StartEngine(engine_flags, *setup, StagePlacement::kAuto,
                                  [&](double share) { loading.Share("Loading", share); });
  loading.Clear();
  if (!engine.ok()) return engine.status();
  PipelineReport report((*engine)->group_info().ranks.size());
  (*engine)->set_step_observer([&](const engine::StepRecord& record) { report.Add(record); });

  GenerateSink::Options options = {.tokenizer = prompts->tokenizer.get(), .stop = flags.stop};
  if (!flags.json && prompts->ids.size() == 1) {
    options.on_text = [](const std::string& text) { return WriteOutput(text); };
  }
  GenerateSink sink(std::move(options), prompts->ids.size());
  const base::Status status = RunPrompts(flags, *prompts, **engine, sink);
  if (!status.ok()) return status;
  PrintOutputs(flags, sink, report, **engine);
  return {};
}

void AddSamplingFlags(CLI::App& command, GenerateFlags& flags) {
  const auto number = [&](const char* name, auto& value, const char* about) {
    command.add_option(name, value, about)->capture_default_str()->group("Sampling");
  };
  number("--max-tokens", flags.max_tokens, "most tokens to generate");
  number("--temperature", flags.sampling.temperature, "0: always the most likely token");
  number("--top-k", flags.sampling.top_k, "draw from the k most likely tokens; 0: all");
  number("--top-p", flags.sampling.top_p,
         "draw from the fewest tokens that together reach this probability");
  number("--min-p", flags.sampling.min_p,
         "drop tokens below this share of the best one's probability");
  number("--seed", flags.sampling.seed, "of the random draws");
  number("--repetition-penalty", flags.sampling.repetition_penalty,
         "above 1: avoid tokens seen so far");
  number("--frequency-penalty", flags.sampling.frequency_penalty, "per occurrence in the output");
  number("--presence-penalty", flags.sampling.presence_penalty, "once for tokens in the output");
  command.add_option("--stop", flags.stop, "end before this text (may be repeated)")
      ->group("Sampling");
  command.add_option("--stop-token-ids", flags.stop_ids, "end after any of these tokens")
      ->delimiter(',')
      ->group("Sampling");
  command.add_flag("--ignore-eos", flags.ignore_eos, "go on after the model's end token")
      ->group("Sampling");
  command
      .add_option("--logprobs", flags.logprobs,
                  "report log-probabilities, and those of N alternatives")
      ->type_name("N")
      ->check(CLI::Range(0, 1000))
      ->group("Sampling");
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Command& selected) {
  CLI::App* command = app.add_subcommand("generate", "generate text after one or several prompts");
  auto flags = std::make_shared<GenerateFlags>();
  CLI::Option* prompt =
      command->add_option("--prompt", flags->prompt, "the prompt itself")->group("Input");
  command
      ->add_option("--prompt-file", flags->prompt_file,
                   "a file with the prompt; - for the standard input")
      ->group("Input");
  command
      ->add_option("--ids-file", flags->ids_file,
                   "a JSON array of token ids, or an array of such arrays (run together)")
      ->group("Input");
  command
      ->add_option("--chat", flags->chat,
                   "a JSON file with messages, rendered by the chat template")
      ->group("Input");
  CLI::Option* question =
      command->add_option("--ask", flags->question, "a question, rendered by the chat template")
          ->group("Input");
  command
      ->add_option("--document", flags->document,
                   "a file with the text that --ask is about; - for the standard input")
      ->needs(question)
      ->group("Input");
  command->add_flag("--sequential", flags->sequential, "run several prompts one after another")
      ->group("Input");
  command->add_flag("--json", flags->json, "print one JSON object")->group("Output");
  AddSamplingFlags(*command, *flags);
  AddEngineFlags(*command, flags->engine);
  command->callback([&selected, flags, prompt] {
    flags->sampling.top_logprobs = std::max(0, flags->logprobs);
    selected = [flags, has_prompt = prompt->count() > 0] { return Generate(*flags, has_prompt); };
  });
}

}  // namespace longspan::apps
