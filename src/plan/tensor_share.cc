#include "plan/tensor_share.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace longspan::plan {
namespace {

// Something that is cut into equal pieces.
struct Divided {
  std::string_view name;
  int count = 0;
};

bool HasLayers(const spec::ModelSpec& model, spec::FeedForwardKind kind) {
  return std::find(model.feed_forward.begin(), model.feed_forward.end(), kind) !=
         model.feed_forward.end();
}

std::vector<Divided> DividedBy(const spec::ModelSpec& model) {
  std::vector<Divided> divided;
  divided.push_back({"attention heads", model.latent_attention ? model.latent_attention->heads
                                                               : model.attention.heads});
  if (HasLayers(model, spec::FeedForwardKind::kDense))
    divided.push_back({"columns of a dense layer", model.intermediate_size});
  if (HasLayers(model, spec::FeedForwardKind::kMoe))
    divided.push_back({"columns of an expert", model.moe.intermediate_size});
  divided.push_back({"tokens of the vocabulary", model.vocab_size});
  return divided;
}

// Fewer KV heads than ranks are replicated, evenly.
bool DividesKvHeads(const spec::ModelSpec& model, int size) {
  if (model.latent_attention) return true;
  const int heads = model.attention.kv_heads;
  return std::max(heads, size) % std::min(heads, size) == 0;
}

// What the size does not divide; null where it divides all.
const Divided* FirstUndivided(const std::vector<Divided>& divided, int size) {
  for (const Divided& each : divided)
    if (each.count % size != 0) return &each;
  return nullptr;
}

}  // namespace

spec::ModelSpec ShareOf(const spec::ModelSpec& model, int size) {
  if (size == 1) return model;
  spec::ModelSpec share = model;
  share.vocab_size /= size;
  share.intermediate_size /= size;
  share.moe.intermediate_size /= size;
  share.attention.heads /= size;
  if (share.latent_attention) {
    share.latent_attention->heads /= size;
  } else {
    share.attention.kv_sharers = std::max(1, size / model.attention.kv_heads);
    share.attention.kv_heads = std::max(1, model.attention.kv_heads / size);
  }
  return share;
}

base::Status CheckTensorShares(const spec::ModelSpec& model, int size) {
  const std::vector<Divided> divided = DividedBy(model);
  const auto divides = [&](int candidate) {
    return FirstUndivided(divided, candidate) == nullptr && DividesKvHeads(model, candidate);
  };
  if (divides(size)) return base::OkStatus();
  int fitting = size - 1;
  while (!divides(fitting)) --fitting;
  if (const Divided* odd = FirstUndivided(divided, size))
    return base::InvalidArgument("--tp-size {} does not divide the {} {}: use --tp-size {}", size,
                                 odd->count, odd->name, fitting);
  return base::InvalidArgument(
      "--tp-size {} is neither a divisor nor a multiple of the {} KV heads: use --tp-size {}", size,
      model.attention.kv_heads, fitting);
}

}  // namespace longspan::plan
