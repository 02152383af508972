// From logits to tokens and log-probabilities.
#include "backend/reference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "backend/reference/kernels.h"
#include "backend/reference/logits.h"
#include "backend/reference/thread_scratch.h"
#include "ops/counter_random.h"

namespace longspan::backend::reference {
namespace {

constexpr double kDropped = -std::numeric_limits<double>::infinity();

// A row's scores, and room to sort its tokens.
struct Candidates {
  Candidates(double* scratch, int64_t vocab_size)
      : scores(scratch, vocab_size),
        order(reinterpret_cast<int32_t*>(scratch + vocab_size), vocab_size) {}

  // The first `count` tokens of `order` are the best, best first; ties to the lower token.
  void SortBest(int64_t count) {
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + count, order.end(),
                      [this](int32_t a, int32_t b) {
                        return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
                      });
  }
  int32_t Best() const {
    return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }

  std::span<double> scores;
  std::span<int32_t> order;
};

void ReadLogits(const float* logits, Candidates& candidates) {
  for (size_t token = 0; token < candidates.scores.size(); ++token)
    candidates.scores[token] = Logit(logits[token]);
}

// log(sum of exp(logit)), in token order.
double LogSum(const float* logits, int64_t vocab_size) {
  double largest = kDropped;
  for (int64_t token = 0; token < vocab_size; ++token)
    largest = std::max(largest, Logit(logits[token]));
  if (largest == kDropped) return 0;
  double sum = 0;
  for (int64_t token = 0; token < vocab_size; ++token)
    sum += std::exp(Logit(logits[token]) - largest);
  return largest + std::log(sum);
}

void ApplyPenalties(const ops::SamplingTables& tables, int64_t row, Candidates& candidates) {
  const double repetition = tables.repetition_penalty.data<float>()[row];
  const double frequency = tables.frequency_penalty.data<float>()[row];
  const double presence = tables.presence_penalty.data<float>()[row];
  const auto* begin = tables.history_begin.data<int32_t>();
  // A step in which no row has a history may have no tables of it.
  if (begin[row] == begin[row + 1]) return;
  const auto* tokens = tables.history_tokens.data<int32_t>();
  const auto* counts = tables.history_counts.data<int32_t>();
  for (int32_t i = begin[row]; i < begin[row + 1]; ++i) {
    double& score = candidates.scores[tokens[i]];
    score = score > 0 ? score / repetition : score * repetition;
    score -= frequency * counts[i];
    if (counts[i] > 0) score -= presence;
  }
}

// Drops what top-k and top-p do not keep.
void KeepLikely(int32_t top_k, double top_p, Candidates& candidates) {
  const auto vocab_size = static_cast<int64_t>(candidates.scores.size());
  int64_t kept = top_k > 0 ? std::min<int64_t>(top_k, vocab_size) : vocab_size;
  if (kept == vocab_size && top_p >= 1) return;
  candidates.SortBest(kept);
  const auto share = [&, best = candidates.scores[candidates.order[0]]](int64_t i) {
    return std::exp(candidates.scores[candidates.order[i]] - best);
  };
  if (top_p < 1) {
    double all = 0;
    for (int64_t i = 0; i < kept; ++i) all += share(i);
    double sum = share(0);
    int64_t reached = 1;
    while (reached < kept && sum < top_p * all) sum += share(reached++);
    kept = reached;
  }
  for (int64_t i = kept; i < vocab_size; ++i) candidates.scores[candidates.order[i]] = kDropped;
}

void DropBelow(double min_p, Candidates& candidates) {
  if (min_p <= 0) return;
  const double best = candidates.scores[candidates.Best()];
  for (double& score : candidates.scores)
    if (std::exp(score - best) < min_p) score = kDropped;
}

const int32_t* ColumnTokens(const ops::SampleArgs& args, int64_t row) {
  return args.column_tokens.empty() ? nullptr : args.column_tokens.row<int32_t>(row);
}

// Which token a column is: `column_tokens` is the row's, or null.
uint64_t TokenOf(const int32_t* column_tokens, size_t column) {
  return column_tokens == nullptr ? column : static_cast<uint64_t>(column_tokens[column]);
}

int32_t Draw(uint64_t seed, uint64_t position, const int32_t* column_tokens,
             Candidates& candidates) {
  for (size_t column = 0; column < candidates.scores.size(); ++column) {
    if (candidates.scores[column] == kDropped) continue;
    const double uniform = ops::CounterUniform(seed, position, TokenOf(column_tokens, column));
    candidates.scores[column] -= std::log(-std::log(uniform));
  }
  return candidates.Best();
}

// The chosen column.
int32_t SampleRow(const ops::SampleArgs& args, int64_t row, Candidates candidates) {
  const ops::SamplingTables& tables = args.tables;
  ReadLogits(args.logits.row<float>(row), candidates);
  ApplyPenalties(tables, row, candidates);
  const double temperature = tables.temperature.data<float>()[row];
  if (temperature == 0 || candidates.scores[candidates.Best()] == kDropped)
    return candidates.Best();
  for (double& score : candidates.scores) score /= temperature;
  KeepLikely(tables.top_k.data<int32_t>()[row], tables.top_p.data<float>()[row], candidates);
  DropBelow(tables.min_p.data<float>()[row], candidates);
  return Draw(static_cast<uint64_t>(tables.seed.data<int64_t>()[row]),
              static_cast<uint64_t>(tables.position.data<int64_t>()[row]), ColumnTokens(args, row),
              candidates);
}

}  // namespace

int64_t SamplingScratchDoubles(int64_t vocab_size) { return vocab_size + (vocab_size + 1) / 2; }

void Sample(tensor::ExecutionContext& context, const ops::SampleArgs& args) {
  const int64_t vocab_size = args.logits.size(1);
  auto* tokens = args.tokens.data<int32_t>();
  auto* logprobs = args.logprobs.data<float>();
  const ThreadScratch scratch(context, SamplingScratchDoubles(vocab_size));
  Threads(context).ParallelFor(args.logits.size(0), [&](int64_t row, int thread) {
    const int32_t column = SampleRow(args, row, Candidates(scratch.of(thread), vocab_size));
    const float* logits = args.logits.row<float>(row);
    tokens[row] = static_cast<int32_t>(TokenOf(ColumnTokens(args, row), column));
    logprobs[row] = static_cast<float>(Logit(logits[column]) - LogSum(logits, vocab_size));
  });
}

void TokenLogprob(tensor::ExecutionContext& context, const ops::TokenLogprobArgs& args) {
  const auto* tokens = args.tokens.data<int32_t>();
  auto* logprobs = args.logprobs.data<float>();
  Threads(context).ParallelFor(args.logits.size(0), [&](int64_t row, int) {
    const float* logits = args.logits.row<float>(row);
    logprobs[row] =
        static_cast<float>(Logit(logits[tokens[row]]) - LogSum(logits, args.logits.size(1)));
  });
}

namespace {

// The best candidates of every row: write(row, logits, candidates, log sum).
template <typename Write>
void ForBest(tensor::ExecutionContext& context, const tensor::ConstView& all, int64_t count,
             Write write) {
  const int64_t vocab_size = all.size(1);
  const ThreadScratch scratch(context, SamplingScratchDoubles(vocab_size));
  Threads(context).ParallelFor(all.size(0), [&](int64_t row, int thread) {
    const float* logits = all.row<float>(row);
    Candidates candidates(scratch.of(thread), vocab_size);
    ReadLogits(logits, candidates);
    candidates.SortBest(count);
    write(row, logits, candidates, LogSum(logits, vocab_size));
  });
}

}  // namespace

void TopLogprobs(tensor::ExecutionContext& context, const ops::TopLogprobsArgs& args) {
  const int64_t count = args.tokens.size(1);
  ForBest(context, args.logits, count,
          [&](int64_t row, const float*, const Candidates& candidates, double log_sum) {
            for (int64_t i = 0; i < count; ++i) {
              const int32_t token = candidates.order[i];
              args.tokens.row<int32_t>(row)[i] = token;
              args.logprobs.row<float>(row)[i] =
                  static_cast<float>(candidates.scores[token] - log_sum);
            }
          });
}

void TopLogits(tensor::ExecutionContext& context, const ops::TopLogitsArgs& args) {
  const int64_t count = args.tokens.size(1);
  ForBest(context, args.logits, count,
          [&](int64_t row, const float* logits, const Candidates& candidates, double log_sum) {
            for (int64_t i = 0; i < count; ++i) {
              args.tokens.row<int32_t>(row)[i] = candidates.order[i];
              args.values.row<float>(row)[i] = logits[candidates.order[i]];
            }
            args.log_sums.data<float>()[row] = static_cast<float>(log_sum);
          });
}

}  // namespace longspan::backend::reference
