// The architectures that this program knows.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "checkpoint/hub_config.h"
#include "spec/model.h"

namespace longspan::model {

// One family of checkpoints. What its layers are made of stands in the ModelSpec that it reads; the
// blocks that compute them are shared. One file per architecture, one line in the registry
// (architecture.cc).
struct Architecture {
  std::string_view name;  // as in config.json's `architectures`
  base::Result<spec::ModelSpec> (*read_spec)(const checkpoint::HubConfig& config);
};

base::Result<spec::ModelSpec> ReadLlamaSpec(const checkpoint::HubConfig& config);
base::Result<spec::ModelSpec> ReadMistralSpec(const checkpoint::HubConfig& config);
base::Result<spec::ModelSpec> ReadQwen2Spec(const checkpoint::HubConfig& config);
base::Result<spec::ModelSpec> ReadQwen3Spec(const checkpoint::HubConfig& config);
base::Result<spec::ModelSpec> ReadQwen3MoeSpec(const checkpoint::HubConfig& config);
base::Result<spec::ModelSpec> ReadDeepseekV3Spec(const checkpoint::HubConfig& config);
base::Result<spec::ModelSpec> ReadDeepseekV32Spec(const checkpoint::HubConfig& config);

// The spec of a configuration, or a sentence that names the architectures there are.
base::Result<spec::ModelSpec> ReadModelSpec(const checkpoint::HubConfig& config);

// The same for the config.json of a folder.
base::Result<spec::ModelSpec> LoadModelSpec(const std::filesystem::path& model_dir);

}  // namespace longspan::model
