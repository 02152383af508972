// What `generate` collects and prints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/progress_bar.h"
#include "engine/output.h"
#include "text/incremental_detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace longspan::apps {

// One prompt's outcome.
struct GeneratedOutput {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<engine::TokenOutput> tokens;
  engine::FinishReason reason = engine::FinishReason::kAbort;
  int64_t prompt_tokens = 0;
  engine::FinishInfo info;

  // The entry of `outputs` in the JSON; with_logprobs adds those of every token.
  nlohmann::ordered_json ToJson(bool with_logprobs) const;
};

// Turns tokens into text, finds stop strings, shows the prefill's progress.
class GenerateSink : public engine::OutputSink {
 public:
  struct Options {
    const text::Tokenizer* tokenizer = nullptr;  // null: no text, only ids
    std::vector<std::string> stop;
    // Gets the text of the outputs as it becomes certain; empty: nobody. False when nobody reads it
    // any more: the sequence ends.
    std::function<bool(const std::string& text)> on_text;
    // Prompts of so many tokens and more show a progress bar.
    int64_t progress_from = 1024;
  };

  GenerateSink(Options options, size_t prompts);

  // The sequence stands for the index-th prompt.
  void Expect(plan::SequenceId sequence, size_t index, int64_t prompt_tokens);

  void OnPrefill(plan::SequenceId sequence, int64_t done, int64_t total) override;
  bool OnToken(plan::SequenceId sequence, const engine::TokenOutput& token) override;
  void OnFinish(plan::SequenceId sequence, engine::FinishReason reason,
                const engine::FinishInfo& info) override;

  const std::vector<GeneratedOutput>& outputs() const { return outputs_; }

 private:
  struct Stream {
    size_t index = 0;
    std::optional<text::IncrementalDetokenizer> detokenizer;
    text::StopMatcher stop;
  };

  // False when nobody reads the text any more.
  bool Emit(Stream& stream, const std::string& text);

  Options options_;
  std::vector<GeneratedOutput> outputs_;
  std::unordered_map<plan::SequenceId, Stream> streams_;
  ProgressBar progress_;
};

}  // namespace longspan::apps
