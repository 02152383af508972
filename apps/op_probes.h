// The ops of ops/op_table.h one by one, each timed on one shape. Figures count what the op must at
// least compute and move.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/op_bench.h"
#include "base/result.h"
#include "spec/model.h"
#include "tensor/dtype.h"

namespace longspan::apps {

// Products: weights that a step of few rows reads from memory are read from there.
// [rows, columns] times the transpose of [n, columns]; `out` is the type of the result.
base::Result<OpFigure> ProbeLinear(OpBench& bench, int64_t rows, int64_t columns, int64_t n,
                                   tensor::DType out);
// Every row through `choices` of the experts, drawn at random.
struct ExpertsShape {
  int64_t rows = 0;
  int64_t experts = 0;
  int64_t choices = 0;
};
base::Result<OpFigure> ProbeGroupedLinear(OpBench& bench, const ExpertsShape& shape,
                                          int64_t columns, int64_t n);
base::Result<OpFigure> ProbeHeadLinear(OpBench& bench, int64_t rows, int64_t heads, int64_t columns,
                                       int64_t n);

// Attention: caches are beyond what the machine's caches hold, as those of many layers are.
struct HeadsShape {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 0;
};
base::Result<OpFigure> ProbeAttention(OpBench& bench, const SliceShape& shape,
                                      const HeadsShape& heads);
// top_k: positions that every row selects; 0: all of them.
base::Result<OpFigure> ProbeLatentAttention(OpBench& bench, const SliceShape& shape,
                                            const spec::LatentAttentionSpec& latent, int64_t top_k);
base::Result<OpFigure> ProbeExpandedLatentAttention(OpBench& bench, const SliceShape& shape,
                                                    const spec::LatentAttentionSpec& latent);
base::Result<OpFigure> ProbeIndexSelect(OpBench& bench, const SliceShape& shape,
                                        const spec::IndexerSpec& indexer);
// Where two ranks divide the pages of every sequence: what one finds in its half of the `shape`'s
// keys, what is merged of both, and what it takes of its own.
base::Result<OpFigure> ProbeIndexCandidates(OpBench& bench, const SliceShape& shape,
                                            const spec::IndexerSpec& indexer);
base::Result<OpFigure> ProbeIndexMerge(OpBench& bench, int64_t rows, int64_t top_k);
base::Result<OpFigure> ProbeIndexTake(OpBench& bench, const SliceShape& shape, int64_t top_k);
// Of two parts.
base::Result<OpFigure> ProbeMergeAttention(OpBench& bench, int64_t rows, int64_t heads,
                                           int64_t dim);

// Ops on rows: their arguments are in the caches where they fit, as a step's are.
base::Result<OpFigure> ProbeEmbedding(OpBench& bench, int64_t rows, int64_t vocab, int64_t hidden);
base::Result<OpFigure> ProbeGatherRows(OpBench& bench, int64_t rows, int64_t columns);
base::Result<OpFigure> ProbeRmsNorm(OpBench& bench, int64_t rows, int64_t heads, int64_t dim);
base::Result<OpFigure> ProbeLayerNorm(OpBench& bench, int64_t rows, int64_t dim);
base::Result<OpFigure> ProbeAdd(OpBench& bench, int64_t rows, int64_t columns);
base::Result<OpFigure> ProbeRopeTable(OpBench& bench, int64_t rows, int64_t dim);
base::Result<OpFigure> ProbeRope(OpBench& bench, int64_t rows, int64_t heads, int64_t dim,
                                 spec::RopePairs pairs);
base::Result<OpFigure> ProbeCacheWrite(OpBench& bench, const SliceShape& shape, int64_t heads,
                                       int64_t dim);
base::Result<OpFigure> ProbeSiluMul(OpBench& bench, int64_t rows, int64_t columns);
base::Result<OpFigure> ProbeRouter(OpBench& bench, int64_t rows, const spec::MoeSpec& moe);
base::Result<OpFigure> ProbeExpertOrder(OpBench& bench, const ExpertsShape& shape);
base::Result<OpFigure> ProbeExpertCombine(OpBench& bench, const ExpertsShape& shape,
                                          int64_t columns);
base::Result<OpFigure> ProbeSample(OpBench& bench, int64_t rows, int64_t vocab);
base::Result<OpFigure> ProbeTokenLogprob(OpBench& bench, int64_t rows, int64_t vocab);
base::Result<OpFigure> ProbeTopLogprobs(OpBench& bench, int64_t rows, int64_t vocab, int64_t count);
base::Result<OpFigure> ProbeTopLogits(OpBench& bench, int64_t rows, int64_t vocab, int64_t count);

// The experts of every row, spread over all of them.
std::vector<int32_t> RandomExperts(const ExpertsShape& shape);

}  // namespace longspan::apps
