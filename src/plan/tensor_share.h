// What a tensor-parallel rank has of a model.
#pragma once

#include "base/status.h"
#include "spec/mesh.h"
#include "spec/model.h"

namespace longspan::plan {

// One of `size` ranks that divide every layer among themselves. Divided are query heads with their
// columns of the output projection, KV heads, the columns of dense layers and of every expert, and
// the vocabulary of the embedding and the head. Whole at every rank are the residual stream, norms,
// the router, the latent and the rope key of latent attention, and the indexer.
struct TensorShare {
  int rank = 0;
  int size = 1;

  // Of something cut into `pieces` equal ones, a divisor of `size`, this rank's. Where there are
  // fewer pieces than ranks, consecutive ranks have the same one.
  constexpr int PieceOf(int pieces) const { return rank * pieces / size; }

  friend bool operator==(const TensorShare&, const TensorShare&) = default;
};

// The model as one rank of `size` computes it: heads, KV heads, columns and vocabulary are those of
// its share. Where there are more ranks than KV heads, every rank has the one head that its query
// heads attend to, and shares it with its neighbours (kv_sharers). The same for every rank. The
// sizes must divide (CheckTensorShares).
spec::ModelSpec ShareOf(const spec::ModelSpec& model, int size);

// Refuses a --tp-size that does not divide the model, and names the largest one below it that does.
base::Status CheckTensorShares(const spec::ModelSpec& model, int size);

}  // namespace longspan::plan
