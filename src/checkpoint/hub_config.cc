#include "checkpoint/hub_config.h"

#include "checkpoint/file.h"
#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;

base::Result<std::string> ReadArchitecture(const JsonFields& fields) {
  LONGSPAN_ASSIGN_OR_RETURN(std::vector<std::string> names, fields.Strings("architectures"));
  if (names.empty())
    return base::InvalidArgument(
        "{}is missing; it must be a list with the model's class, for example "
        "[\"LlamaForCausalLM\"]",
        fields.Describe("architectures"));
  if (names.size() > 1)
    return base::InvalidArgument("{}has {} entries; it must have exactly one",
                                 fields.Describe("architectures"), names.size());
  return std::move(names[0]);
}

}  // namespace

base::Result<HubConfig> HubConfig::FromTexts(const Texts& texts) {
  LONGSPAN_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Parse(texts.config, texts.config_name));
  LONGSPAN_ASSIGN_OR_RETURN(std::string architecture, ReadArchitecture(fields));
  std::vector<int64_t> end_tokens;
  if (!texts.generation.empty()) {
    LONGSPAN_ASSIGN_OR_RETURN(const JsonFields generation,
                              JsonFields::Parse(texts.generation, texts.generation_name));
    LONGSPAN_ASSIGN_OR_RETURN(end_tokens, generation.IntOrInts("eos_token_id"));
  }
  return HubConfig(std::move(fields), std::move(architecture), std::move(end_tokens));
}

base::Result<HubConfig> HubConfig::Parse(std::string_view config_json,
                                         std::string_view generation_config_json) {
  return FromTexts({.config = config_json,
                    .config_name = "config.json",
                    .generation = generation_config_json,
                    .generation_name = "generation_config.json"});
}

base::Result<HubConfig> HubConfig::Load(const std::filesystem::path& model_dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(model_dir, error))
    return base::NotFound("there is no model folder {}", model_dir.native());
  const std::filesystem::path config_path = model_dir / "config.json";
  const std::filesystem::path generation_path = model_dir / "generation_config.json";
  LONGSPAN_ASSIGN_OR_RETURN(const std::string config, ReadTextFile(config_path, kMaxConfigBytes));
  std::string generation;
  if (std::filesystem::exists(generation_path, error)) {
    LONGSPAN_ASSIGN_OR_RETURN(generation, ReadTextFile(generation_path, kMaxConfigBytes));
    if (generation.empty()) return base::DataLoss("{} is empty", generation_path.native());
  }
  return FromTexts({.config = config,
                    .config_name = config_path.native(),
                    .generation = generation,
                    .generation_name = generation_path.native()});
}

base::Status HubConfig::CheckNoSlidingWindow() const {
  LONGSPAN_ASSIGN_OR_RETURN(const bool used, Bool("use_sliding_window", true));
  if (used && Has("sliding_window")) {
    LONGSPAN_ASSIGN_OR_RETURN(const int64_t window, Int("sliding_window"));
    return base::Unimplemented("{}is {}: attention within a sliding window is not supported for {}",
                               Describe("sliding_window"), window, architecture_);
  }
  LONGSPAN_ASSIGN_OR_RETURN(const std::vector<std::string> types, Strings("layer_types"));
  for (const std::string& type : types) {
    if (type != "full_attention")
      return base::Unimplemented(
          "{}has a layer of type {}: {} is supported with full_attention only",
          Describe("layer_types"), Quoted(type), architecture_);
  }
  return base::OkStatus();
}

base::Result<std::optional<Fp8Blocks>> HubConfig::ReadFp8Blocks() const {
  LONGSPAN_ASSIGN_OR_RETURN(const auto section, Section("quantization_config"));
  if (!section) return std::optional<Fp8Blocks>();
  LONGSPAN_ASSIGN_OR_RETURN(const std::string method, section->String("quant_method", "unknown"));
  if (method != "fp8")
    return base::Unimplemented(
        "{}: weights quantised by {} are not supported for {}; use the model's BF16 or FP8 weights",
        where(), Quoted(method), architecture_);
  LONGSPAN_ASSIGN_OR_RETURN(const std::string format, section->String("fmt", "e4m3"));
  if (format != "e4m3")
    return base::Unimplemented("{}is {}; FP8 weights must be 'e4m3'", section->Describe("fmt"),
                               Quoted(format));
  LONGSPAN_ASSIGN_OR_RETURN(const auto block, section->Ints("weight_block_size"));
  if (block.empty())
    return base::Unimplemented(
        "{}is missing: FP8 weights are supported with one scale per block only",
        section->Describe("weight_block_size"));
  if (block.size() != 2 || block[0] < 1 || block[1] < 1)
    return base::InvalidArgument("{}must be two positive numbers",
                                 section->Describe("weight_block_size"));
  return std::optional(Fp8Blocks{.rows = block[0], .columns = block[1]});
}

}  // namespace longspan::checkpoint
