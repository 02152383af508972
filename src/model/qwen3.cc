// Qwen3: no bias by default, but an RMSNorm on every query and key head before the rotation.
#include "model/architecture.h"

namespace longspan::model {

base::Result<spec::ModelSpec> ReadQwen3Spec(const checkpoint::HubConfig& config) {
  LONGSPAN_RETURN_IF_ERROR(config.CheckNoSlidingWindow());
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model, config.CommonSpec());
  LONGSPAN_ASSIGN_OR_RETURN(const bool attention_bias, config.Bool("attention_bias", false));
  model.attention.qkv_bias = attention_bias;
  model.attention.output_bias = attention_bias;
  model.attention.qk_norm = true;
  return model;
}

}  // namespace longspan::model
