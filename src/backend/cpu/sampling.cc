// From logits to tokens and log-probabilities.
#include <algorithm>
#include <numeric>
#include <span>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/logits.h"
#include "ops/backend.h"
#include "ops/counter_random.h"
#include "tensor/workspace.h"

namespace longspan::backend::cpu {
namespace {

using tensor::DType;

constexpr double kDropped = -std::numeric_limits<double>::infinity();

// A row's scores, and an order of its tokens of which the first ones are sorted: best first, ties
// to the lower token.
class Candidates {
 public:
  Candidates(double* scores, int32_t* order, int64_t vocab_size)
      : scores_(scores, vocab_size), order_(order, vocab_size) {}

  std::span<double> scores() { return scores_; }
  int64_t size() const { return static_cast<int64_t>(scores_.size()); }
  // The i-th best token, i below the last SortBest.
  int32_t token(int64_t i) const { return order_[i]; }
  double score(int64_t i) const { return scores_[order_[i]]; }

  void Reset() {
    std::iota(order_.begin(), order_.end(), 0);
    sorted_ = 0;
  }
  // Sorts on to the `count` best.
  void SortBest(int64_t count) {
    if (count <= sorted_) return;
    const auto better = [this](int32_t a, int32_t b) {
      return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
    };
    const auto begin = order_.begin() + sorted_;
    const auto end = order_.begin() + count;
    if (end != order_.end()) std::nth_element(begin, end, order_.end(), better);
    std::sort(begin, end, better);
    sorted_ = count;
  }
  int32_t Best() const {
    return static_cast<int32_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
  }

 private:
  std::span<double> scores_;
  std::span<int32_t> order_;
  int64_t sorted_ = 0;
};

// Room for the Candidates of every thread.
struct Scratch {
  Scratch(tensor::Workspace::Scope& scope, int threads, int64_t vocab)
      : vocab_size(vocab),
        scores(scope.Take(DType::kI64, {threads, vocab}).raw()),
        order(scope.Take(DType::kI32, {threads, vocab}).data<int32_t>()) {}

  Candidates Of(int thread) const {
    return Candidates(static_cast<double*>(scores) + thread * vocab_size,
                      order + thread * vocab_size, vocab_size);
  }

  int64_t vocab_size;
  void* scores;  // doubles
  int32_t* order;
};

// The largest logit, and the logarithm of the sum of all exponentials.
struct LogitSum {
  float max = 0;
  double log_sum = 0;
};

LogitSum SumOf(const KernelTable& kernels, const float* logits, int64_t vocab_size) {
  LogitSum result;
  double sum = 0;
  kernels.exp_sum(logits, vocab_size, &result.max, &sum);
  result.log_sum = std::isinf(result.max) ? 0 : static_cast<double>(result.max) + std::log(sum);
  return result;
}

double LogSum(const KernelTable& kernels, const float* logits, int64_t vocab_size) {
  return SumOf(kernels, logits, vocab_size).log_sum;
}

void ReadLogits(const float* logits, Candidates& candidates) {
  for (int64_t token = 0; token < candidates.size(); ++token)
    candidates.scores()[token] = Logit(logits[token]);
}

// The first one that is as large as the largest.
int32_t LargestLogit(const float* logits, int64_t vocab_size, float max) {
  const float* end = logits + vocab_size;
  const float* best = std::find_if(logits, end, [max](float logit) { return Logit(logit) == max; });
  return best == end ? 0 : static_cast<int32_t>(best - logits);
}

bool HasHistory(const ops::SamplingTables& tables, int64_t row) {
  const auto* begin = tables.history_begin.data<int32_t>();
  return begin[row] != begin[row + 1];
}

void ApplyPenalties(const ops::SamplingTables& tables, int64_t row, std::span<double> scores) {
  if (!HasHistory(tables, row)) return;
  const double repetition = tables.repetition_penalty.data<float>()[row];
  const double frequency = tables.frequency_penalty.data<float>()[row];
  const double presence = tables.presence_penalty.data<float>()[row];
  const auto* begin = tables.history_begin.data<int32_t>();
  const auto* tokens = tables.history_tokens.data<int32_t>();
  const auto* counts = tables.history_counts.data<int32_t>();
  for (int32_t i = begin[row]; i < begin[row + 1]; ++i) {
    double& score = scores[tokens[i]];
    score = score > 0 ? score / repetition : score * repetition;
    score -= frequency * counts[i];
    if (counts[i] > 0) score -= presence;
  }
}

// How many of the `kept` best reach top_p of their probability together. Sorts no further than
// needed: the few best usually carry it.
int64_t CountToReach(double top_p, int64_t kept, Candidates& candidates) {
  candidates.SortBest(1);
  const double best = candidates.score(0);
  double all = 0;
  if (kept == candidates.size()) {
    for (const double score : candidates.scores()) all += std::exp(score - best);
  } else {
    for (int64_t i = 0; i < kept; ++i) all += std::exp(candidates.score(i) - best);
  }
  double sum = 1;
  int64_t reached = 1;
  for (int64_t sorted = 1; reached < kept && sum < top_p * all; ++reached) {
    if (reached == sorted) {
      sorted = std::min(kept, sorted * 8);
      candidates.SortBest(sorted);
    }
    sum += std::exp(candidates.score(reached) - best);
  }
  return reached;
}

// Drops what top-k and top-p do not keep.
void KeepLikely(int32_t top_k, double top_p, Candidates& candidates) {
  int64_t kept = top_k > 0 ? std::min<int64_t>(top_k, candidates.size()) : candidates.size();
  if (kept == candidates.size() && top_p >= 1) return;
  candidates.Reset();
  if (kept < candidates.size()) candidates.SortBest(kept);
  if (top_p < 1) kept = CountToReach(top_p, kept, candidates);
  // What follows the first `kept` is worse, sorted or not.
  for (int64_t i = kept; i < candidates.size(); ++i)
    candidates.scores()[candidates.token(i)] = kDropped;
}

void DropBelow(double min_p, Candidates& candidates) {
  if (min_p <= 0) return;
  const double best = candidates.scores()[candidates.Best()];
  for (double& score : candidates.scores())
    if (std::exp(score - best) < min_p) score = kDropped;
}

const int32_t* ColumnTokens(const ops::SampleArgs& args, int64_t row) {
  return args.column_tokens.empty() ? nullptr : args.column_tokens.row<int32_t>(row);
}

// Which token a column is: `column_tokens` is the row's, or null.
uint64_t TokenOf(const int32_t* column_tokens, size_t column) {
  return column_tokens == nullptr ? column : static_cast<uint64_t>(column_tokens[column]);
}

// The column that the Gumbel-max rule chooses (see ops/sample.h).
int32_t Draw(uint64_t seed, uint64_t position, const int32_t* column_tokens,
             std::span<const double> scores) {
  int32_t best = 0;
  double best_value = kDropped;
  for (size_t column = 0; column < scores.size(); ++column) {
    if (scores[column] == kDropped) continue;
    const double uniform = ops::CounterUniform(seed, position, TokenOf(column_tokens, column));
    const double value = scores[column] - std::log(-std::log(uniform));
    if (value > best_value) {
      best = static_cast<int32_t>(column);
      best_value = value;
    }
  }
  return best;
}

// The chosen column.
int32_t SampleRow(const ops::SampleArgs& args, int64_t row, float max, Candidates candidates) {
  const ops::SamplingTables& tables = args.tables;
  const double temperature = tables.temperature.data<float>()[row];
  if (temperature == 0 && !HasHistory(tables, row))
    return LargestLogit(args.logits.row<float>(row), candidates.size(), max);
  ReadLogits(args.logits.row<float>(row), candidates);
  ApplyPenalties(tables, row, candidates.scores());
  const int32_t best = candidates.Best();
  if (temperature == 0 || candidates.scores()[best] == kDropped) return best;
  for (double& score : candidates.scores()) score /= temperature;
  KeepLikely(tables.top_k.data<int32_t>()[row], tables.top_p.data<float>()[row], candidates);
  DropBelow(tables.min_p.data<float>()[row], candidates);
  return Draw(static_cast<uint64_t>(tables.seed.data<int64_t>()[row]),
              static_cast<uint64_t>(tables.position.data<int64_t>()[row]), ColumnTokens(args, row),
              candidates.scores());
}

}  // namespace

int64_t SamplingWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  using tensor::Workspace;
  if (shape.logit_rows == 0) return 0;
  return Workspace::PaddedBytes(threads * shape.vocab_size * 8) +
         Workspace::PaddedBytes(threads * shape.vocab_size * 4);
}

void Sample(tensor::ExecutionContext& context, const ops::SampleArgs& args) {
  const int64_t vocab_size = args.logits.size(1);
  auto* tokens = args.tokens.data<int32_t>();
  auto* logprobs = args.logprobs.data<float>();
  const KernelTable& kernels = ActiveKernels();
  tensor::Workspace::Scope scope(context.workspace);
  const Scratch scratch(scope, Pool(context).threads(), vocab_size);
  Pool(context).ParallelFor(args.logits.size(0), [&](int64_t row, int thread) {
    const float* logits = args.logits.row<float>(row);
    const LogitSum sum = SumOf(kernels, logits, vocab_size);
    const int32_t column = SampleRow(args, row, sum.max, scratch.Of(thread));
    tokens[row] = static_cast<int32_t>(TokenOf(ColumnTokens(args, row), column));
    logprobs[row] = static_cast<float>(Logit(logits[column]) - sum.log_sum);
  });
}

void TokenLogprob(tensor::ExecutionContext& context, const ops::TokenLogprobArgs& args) {
  const auto* tokens = args.tokens.data<int32_t>();
  auto* logprobs = args.logprobs.data<float>();
  const KernelTable& kernels = ActiveKernels();
  ForRows(context, args.logits.size(0), 4 * args.logits.size(1), [&](int64_t row) {
    const float* logits = args.logits.row<float>(row);
    logprobs[row] = static_cast<float>(Logit(logits[tokens[row]]) -
                                       LogSum(kernels, logits, args.logits.size(1)));
  });
}

namespace {

// The best candidates of every row: write(row, logits, candidates, log sum).
template <typename Write>
void ForBest(tensor::ExecutionContext& context, const tensor::ConstView& all, int64_t count,
             Write write) {
  const int64_t vocab_size = all.size(1);
  const KernelTable& kernels = ActiveKernels();
  tensor::Workspace::Scope scope(context.workspace);
  const Scratch scratch(scope, Pool(context).threads(), vocab_size);
  Pool(context).ParallelFor(all.size(0), [&](int64_t row, int thread) {
    const float* logits = all.row<float>(row);
    Candidates candidates = scratch.Of(thread);
    ReadLogits(logits, candidates);
    candidates.Reset();
    candidates.SortBest(count);
    write(row, logits, candidates, LogSum(kernels, logits, vocab_size));
  });
}

}  // namespace

void TopLogprobs(tensor::ExecutionContext& context, const ops::TopLogprobsArgs& args) {
  const int64_t count = args.tokens.size(1);
  ForBest(context, args.logits, count,
          [&](int64_t row, const float*, const Candidates& candidates, double log_sum) {
            for (int64_t i = 0; i < count; ++i) {
              args.tokens.row<int32_t>(row)[i] = candidates.token(i);
              args.logprobs.row<float>(row)[i] = static_cast<float>(candidates.score(i) - log_sum);
            }
          });
}

void TopLogits(tensor::ExecutionContext& context, const ops::TopLogitsArgs& args) {
  const int64_t count = args.tokens.size(1);
  ForBest(context, args.logits, count,
          [&](int64_t row, const float* logits, const Candidates& candidates, double log_sum) {
            for (int64_t i = 0; i < count; ++i) {
              args.tokens.row<int32_t>(row)[i] = candidates.token(i);
              args.values.row<float>(row)[i] = logits[candidates.token(i)];
            }
            args.log_sums.data<float>()[row] = static_cast<float>(log_sum);
          });
}

}  // namespace longspan::backend::cpu
