#include "apps/model_ops.h"

#include <algorithm>

#include "model/rope_frequencies.h"

namespace longspan::apps {
namespace {

using tensor::DType;

// Alternatives that a request may ask for, and what a rank tells of its part of a vocabulary.
constexpr int64_t kTopLogprobs = 20;
constexpr int64_t kTopLogits = 64;

// The list for steps of one shape.
class StepOps {
 public:
  StepOps(const spec::ModelSpec& model, const SliceShape& shape)
      : model_(model), shape_(shape), rows_(shape.all_rows()), hidden_(model.hidden_size) {}

  void AddBefore() {
    Add(ProbeEmbedding, rows_, model_.vocab_size, hidden_);
    Add(ProbeRopeTable, rows_, model::RotatedDimensions(model_));
  }

  void AddBetween() {
    Add(ProbeRmsNorm, rows_, 1, hidden_);
    Add(ProbeAdd, rows_, hidden_);
  }

  void AddGroupedAttention(bool small_ops) {
    const spec::AttentionSpec& attention = model_.attention;
    const int64_t query_size = int64_t{attention.heads} * attention.head_dim;
    const int64_t kept = 2 * int64_t{attention.kv_heads} * attention.head_dim;
    AddLinear(hidden_, query_size + kept);
    if (small_ops) {
      if (attention.qk_norm) Add(ProbeRmsNorm, rows_, attention.heads, attention.head_dim);
      Add(ProbeRope, rows_, attention.heads, attention.head_dim, attention.rope.pairs);
      Add(ProbeCacheWrite, shape_, attention.kv_heads, attention.head_dim);
    }
    Add(ProbeAttention, shape_,
        HeadsShape{attention.heads, attention.kv_heads, attention.head_dim});
    if (small_ops) Add(ProbeMergeAttention, rows_, attention.heads, attention.head_dim);
    AddLinear(query_size, hidden_);
  }

  void AddLatentAttention(bool small_ops) {
    const spec::LatentAttentionSpec& latent = *model_.latent_attention;
    const int64_t query_size = int64_t{latent.heads} * (latent.nope_dim + latent.rope_dim);
    const int64_t kept = int64_t{latent.latent_rank} + latent.rope_dim;
    AddLinear(hidden_, kept + (latent.query_rank > 0 ? latent.query_rank : query_size));
    if (latent.query_rank > 0) AddLinear(latent.query_rank, query_size);
    if (small_ops) {
      Add(ProbeRmsNorm, rows_, 1, latent.latent_rank);
      Add(ProbeRope, rows_, latent.heads, latent.rope_dim, model_.attention.rope.pairs);
      Add(ProbeCacheWrite, shape_, 1, latent.latent_rank);
    }
    Add(ProbeHeadLinear, rows_, latent.heads, latent.nope_dim, latent.latent_rank);
    Add(ProbeLatentAttention, shape_, latent, 0);
    Add(ProbeHeadLinear, rows_, latent.heads, latent.latent_rank, latent.value_dim);
    // Decoding rows absorb.
    if (small_ops && latent.nope_dim % 2 == 0) Add(ProbeExpandedLatentAttention, shape_, latent);
    if (small_ops) Add(ProbeMergeAttention, rows_, latent.heads, latent.latent_rank);
    if (model_.indexer) AddIndexer(small_ops);
    AddLinear(int64_t{latent.heads} * latent.value_dim, hidden_);
  }

  void AddFeedForward(bool small_ops) {
    if (Has(spec::FeedForwardKind::kDense)) AddMlp(model_.intermediate_size, small_ops);
    if (!Has(spec::FeedForwardKind::kMoe)) return;
    const spec::MoeSpec& moe = model_.moe;
    const ExpertsShape shape = {rows_, moe.experts, moe.experts_per_token};
    Add(ProbeLinear, rows_, hidden_, int64_t{moe.experts}, DType::kF32);
    if (small_ops) {
      Add(ProbeRouter, rows_, moe);
      Add(ProbeExpertOrder, shape);
    }
    Add(ProbeGroupedLinear, shape, hidden_, 2 * int64_t{moe.intermediate_size});
    if (small_ops) Add(ProbeSiluMul, rows_ * moe.experts_per_token, int64_t{moe.intermediate_size});
    Add(ProbeGroupedLinear, shape, int64_t{moe.intermediate_size}, hidden_);
    if (small_ops) Add(ProbeExpertCombine, shape, hidden_);
    if (moe.shared_experts > 0)
      AddMlp(int64_t{moe.shared_experts} * moe.intermediate_size, small_ops);
  }

  // Of rows that get logits.
  void AddHead() {
    Add(ProbeGatherRows, rows_, hidden_);
    Add(ProbeLinear, rows_, hidden_, int64_t{model_.vocab_size}, DType::kF32);
    Add(ProbeSample, rows_, model_.vocab_size);
    Add(ProbeTokenLogprob, rows_, model_.vocab_size);
    Add(ProbeTopLogprobs, rows_, model_.vocab_size, Most(kTopLogprobs));
    Add(ProbeTopLogits, rows_, model_.vocab_size, Most(kTopLogits));
  }

  void AddLayer(bool small_ops) {
    if (small_ops) AddBetween();
    if (model_.latent_attention)
      AddLatentAttention(small_ops);
    else
      AddGroupedAttention(small_ops);
    AddFeedForward(small_ops);
  }

  std::vector<OpProbe> Take() { return std::move(list_); }

 private:
  template <typename Probe, typename... Shape>
  void Add(Probe probe, Shape... shape) {
    list_.emplace_back([=](OpBench& bench) { return probe(bench, shape...); });
  }
  void AddLinear(int64_t columns, int64_t n) {
    list_.emplace_back([=, rows = rows_](OpBench& bench) {
      return ProbeLinear(bench, rows, columns, n, bench.type());
    });
  }
  void AddMlp(int64_t size, bool small_ops) {
    AddLinear(hidden_, 2 * size);
    if (small_ops) Add(ProbeSiluMul, rows_, size);
    AddLinear(size, hidden_);
  }
  void AddIndexer(bool small_ops) {
    const spec::LatentAttentionSpec& latent = *model_.latent_attention;
    const spec::IndexerSpec& indexer = *model_.indexer;
    AddLinear(latent.query_rank, int64_t{indexer.heads} * indexer.head_dim);
    if (small_ops) Add(ProbeLayerNorm, rows_, int64_t{indexer.head_dim});
    Add(ProbeIndexSelect, shape_, indexer);
    if (small_ops) {
      Add(ProbeIndexCandidates, shape_, indexer);
      Add(ProbeIndexMerge, rows_, int64_t{indexer.top_k});
      Add(ProbeIndexTake, shape_, int64_t{indexer.top_k});
    }
    Add(ProbeLatentAttention, shape_, latent, int64_t{indexer.top_k});
  }
  int64_t Most(int64_t count) const { return std::min<int64_t>(count, model_.vocab_size); }
  bool Has(spec::FeedForwardKind kind) const {
    return std::ranges::find(model_.feed_forward, kind) != model_.feed_forward.end();
  }

  spec::ModelSpec model_;
  SliceShape shape_;
  int64_t rows_;
  int64_t hidden_;
  std::vector<OpProbe> list_;
};

}  // namespace

std::vector<OpProbe> ModelOps(const spec::ModelSpec& model, const SliceShape& prefill) {
  StepOps chunk(model, prefill);
  chunk.AddBefore();
  chunk.AddLayer(/*small_ops=*/true);
  std::vector<OpProbe> all = chunk.Take();
  StepOps row(model, {.slices = 1, .rows = 1, .keys = prefill.keys});
  row.AddLayer(/*small_ops=*/false);
  row.AddHead();
  for (OpProbe& probe : row.Take()) all.push_back(std::move(probe));
  return all;
}

std::vector<OpProbe> LargeOps(double scale) {
  std::vector<OpProbe> list;
  const auto rows = static_cast<int64_t>(8192 * scale);
  const auto context = static_cast<int64_t>(131072 * scale);
  const auto product = [&](int64_t m, int64_t columns, int64_t n) {
    list.emplace_back(
        [=](OpBench& bench) { return ProbeLinear(bench, m, columns, n, bench.type()); });
  };
  const auto experts = [&](int64_t m, int64_t columns, int64_t n) {
    list.emplace_back([=](OpBench& bench) {
      return ProbeGroupedLinear(bench, {.rows = m, .experts = 128, .choices = 8}, columns, n);
    });
  };
  const auto attention = [&](const SliceShape& shape, int64_t heads) {
    list.emplace_back([=](OpBench& bench) {
      return ProbeAttention(bench, shape, {.heads = heads, .kv_heads = 4, .head_dim = 128});
    });
  };
  product(rows, 8192, 8192);
  product(rows, 2048, 5120);
  product(rows, 4096, 2048);
  product(64, 2048, 5120);
  experts(rows, 2048, 1536);
  experts(rows, 768, 2048);
  experts(64, 2048, 1536);
  attention({.rows = rows, .keys = context}, 64);
  attention({.rows = rows, .keys = context}, 32);
  attention({.rows = 1, .keys = context}, 64);
  attention({.slices = 32, .rows = 1, .keys = context / 4}, 64);
  return list;
}

}  // namespace longspan::apps
