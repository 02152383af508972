#include "model/architecture.h"

#include <array>
#include <string>

namespace longspan::model {
namespace {

constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", ReadLlamaSpec},
    Architecture{"MistralForCausalLM", ReadMistralSpec},
    Architecture{"Qwen2ForCausalLM", ReadQwen2Spec},
    Architecture{"Qwen3ForCausalLM", ReadQwen3Spec},
    Architecture{"Qwen3MoeForCausalLM", ReadQwen3MoeSpec},
    Architecture{"DeepseekV3ForCausalLM", ReadDeepseekV3Spec},
    Architecture{"DeepseekV32ForCausalLM", ReadDeepseekV32Spec},
};

}  // namespace

base::Result<spec::ModelSpec> ReadModelSpec(const checkpoint::HubConfig& config) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == config.architecture()) {
      LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model, architecture.read_spec(config));
      model.architecture = architecture.name;
      return model;
    }
    known += known.empty() ? "" : ", ";
    known += architecture.name;
  }
  return base::InvalidArgument("the architecture '{}' is not supported: use one of {}",
                               config.architecture(), known);
}

base::Result<spec::ModelSpec> LoadModelSpec(const std::filesystem::path& model_dir) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto config, checkpoint::HubConfig::Load(model_dir));
  return ReadModelSpec(config);
}

}  // namespace longspan::model
