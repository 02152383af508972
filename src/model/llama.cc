// Llama 1 to 3.x, and Mistral without a sliding window: grouped-query attention and SwiGLU.
#include "model/architecture.h"

namespace longspan::model {

base::Result<spec::ModelSpec> ReadLlamaSpec(const checkpoint::HubConfig& config) {
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model, config.CommonSpec());
  LONGSPAN_ASSIGN_OR_RETURN(const bool attention_bias, config.Bool("attention_bias", false));
  LONGSPAN_ASSIGN_OR_RETURN(model.mlp_bias, config.Bool("mlp_bias", false));
  model.attention.qkv_bias = attention_bias;
  model.attention.output_bias = attention_bias;
  return model;
}

base::Result<spec::ModelSpec> ReadMistralSpec(const checkpoint::HubConfig& config) {
  LONGSPAN_RETURN_IF_ERROR(config.CheckNoSlidingWindow());
  return config.CommonSpec();
}

}  // namespace longspan::model
