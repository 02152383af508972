// Qwen2 and 2.5: Llama with a bias on q, k and v.
#include "model/architecture.h"

namespace longspan::model {

base::Result<spec::ModelSpec> ReadQwen2Spec(const checkpoint::HubConfig& config) {
  LONGSPAN_RETURN_IF_ERROR(config.CheckNoSlidingWindow());
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec model, config.CommonSpec());
  model.attention.qkv_bias = true;
  return model;
}

}  // namespace longspan::model
