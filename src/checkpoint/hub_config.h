// config.json of a Hub folder, as transformers 4 and 5 write it, and what it says about a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/fp8.h"
#include "checkpoint/json_fields.h"
#include "spec/model.h"

namespace longspan::checkpoint {

// A parsed config.json. An architecture takes CommonSpec() and adds its own keys through the typed
// getters. Immutable after parsing.
class HubConfig : public JsonFields {
 public:
  // Reads config.json, and generation_config.json where there is one. NotFound where the folder or
  // config.json is missing.
  static base::Result<HubConfig> Load(const std::filesystem::path& model_dir);
  // From the texts of the files; an empty second one is an absent one.
  static base::Result<HubConfig> Parse(std::string_view config_json,
                                       std::string_view generation_config_json = "");

  // The one entry of `architectures`, for example "LlamaForCausalLM".
  const std::string& architecture() const { return architecture_; }

  // The keys that decoder models with grouped-query attention share: sizes, normalisation, tied
  // embeddings, context length, end tokens (generation_config.json's win), and rope in both
  // spellings (`rope_theta` with `rope_scaling`, or `rope_parameters`), of type default, llama3 or
  // yarn.
  // Every layer is dense. Biases, q/k norm and experts are left to the architecture.
  // InvalidArgument for missing keys and for values that make no sense; Unimplemented for another
  // activation or rope type and for weights quantised otherwise than ReadFp8Blocks() says, by their
  // names.
  base::Result<spec::ModelSpec> CommonSpec() const;
  // The same without the number and size of attention heads, for other kinds of attention.
  base::Result<spec::ModelSpec> SpecWithoutHeads() const;

  // Unimplemented where some layer looks back through a window only: `sliding_window` is set and
  // `use_sliding_window` is not false, or `layer_types` lists other layers than "full_attention".
  base::Status CheckNoSlidingWindow() const;
  // The blocks of weights that are stored as e4m3 with one scale per block (`quantization_config`
  // of method fp8); nullopt where weights are not quantised. Unimplemented for all other methods
  // and formats, by their names.
  base::Result<std::optional<Fp8Blocks>> ReadFp8Blocks() const;

 private:
  HubConfig(JsonFields fields, std::string architecture, std::vector<int64_t> generation_end_tokens)
      : JsonFields(std::move(fields)),
        architecture_(std::move(architecture)),
        generation_end_tokens_(std::move(generation_end_tokens)) {}

  // The files' contents, and their names for messages.
  struct Texts {
    std::string_view config;
    std::string config_name;
    std::string_view generation;
    std::string generation_name;
  };
  static base::Result<HubConfig> FromTexts(const Texts& texts);

  std::string architecture_;
  std::vector<int64_t> generation_end_tokens_;
};

}  // namespace longspan::checkpoint
