// The names that all supported architectures give their weights on the Hub.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace longspan::checkpoint {

inline constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";
inline constexpr std::string_view kFinalNormName = "model.norm.weight";
// Absent where the embeddings are tied.
inline constexpr std::string_view kHeadName = "lm_head.weight";

// LayerName(3, "mlp.up_proj.weight") is "model.layers.3.mlp.up_proj.weight".
inline std::string LayerName(int layer, std::string_view suffix) {
  return fmt::format("model.layers.{}.{}", layer, suffix);
}

}  // namespace longspan::checkpoint
