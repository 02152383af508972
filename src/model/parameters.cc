#include "model/parameters.h"

namespace longspan::model {

int64_t Parameters(const spec::ModelSpec& model) {
  const int64_t hidden = model.hidden_size;
  const int64_t query = int64_t{model.attention.heads} * model.attention.head_dim;
  const int64_t kv = int64_t{model.attention.kv_heads} * model.attention.head_dim;
  int64_t count = 2 * hidden * model.vocab_size;
  for (const spec::FeedForwardKind kind : model.feed_forward) {
    count += hidden * (2 * query + 2 * kv);
    count += kind == spec::FeedForwardKind::kDense
                 ? 3 * hidden * model.intermediate_size
                 : hidden * model.moe.experts * (1 + 3 * int64_t{model.moe.intermediate_size});
  }
  return count;
}

}  // namespace longspan::model
