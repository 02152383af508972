#include "checkpoint/checkpoint.h"

#include <utility>

#include "checkpoint/fp8.h"
#include "checkpoint/hub_config.h"
#include "checkpoint/safetensors.h"

namespace longspan::checkpoint {

base::Result<std::unique_ptr<WeightSource>> OpenCheckpoint(const std::filesystem::path& model_dir) {
  LONGSPAN_ASSIGN_OR_RETURN(const HubConfig config, HubConfig::Load(model_dir));
  LONGSPAN_ASSIGN_OR_RETURN(const auto blocks, config.ReadFp8Blocks());
  LONGSPAN_ASSIGN_OR_RETURN(auto stored, OpenSafetensors(model_dir));
  return DequantizeFp8(std::move(stored), blocks);
}

}  // namespace longspan::checkpoint
