#include "runtime/divided_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/host_copy.h"

namespace longspan::runtime {
namespace {

using tensor::DType;
using tensor::View;

struct Candidate {
  int32_t token = 0;
  float logit = 0;
};

// log(sum of exp) of parts that have these.
double JoinLogSums(const std::vector<double>& parts) {
  const double largest = *std::max_element(parts.begin(), parts.end());
  double sum = 0;
  for (const double part : parts) sum += std::exp(part - largest);
  return largest + std::log(sum);
}

}  // namespace

std::vector<std::pair<int32_t, float>> BestTokens::Logprobs(size_t row) const {
  std::vector<std::pair<int32_t, float>> logprobs;
  const size_t begin = row * static_cast<size_t>(count);
  for (size_t i = begin; i < begin + static_cast<size_t>(count); ++i)
    logprobs.emplace_back(tokens[i], static_cast<float>(logits[i] - log_sums[row]));
  // They are in the order of the tokens now.
  std::stable_sort(logprobs.begin(), logprobs.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return logprobs;
}

base::Result<View> DividedHead::AllLogits(const model::Step& step, const tensor::ConstView& normed,
                                          tensor::Workspace::Scope& scope) const {
  comm::RankGroup& group = *groups_.tensor_group();
  const int64_t rows = normed.size(0);
  const int64_t ranks = group.size();
  // By rank, then by row; the index takes them to rows of the whole vocabulary.
  const View blocks = scope.Take(DType::kF32, {ranks * rows, share_size()});
  const View logits = scope.Take(DType::kF32, {rows, vocab_size_});
  std::vector<int32_t> index;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t rank = 0; rank < ranks; ++rank)
      index.push_back(static_cast<int32_t>(rank * rows + row));
  LONGSPAN_ASSIGN_OR_RETURN(const View device_index,
                            ToDevice(backend_, step.context.queue, scope, index));
  const View own = blocks.Rows(group.rank() * rows, rows);
  model_.Logits(step, normed, own);
  const std::vector<size_t> sizes(static_cast<size_t>(ranks), static_cast<size_t>(own.bytes()));
  LONGSPAN_RETURN_IF_ERROR(groups_.Wait(group.AllGather(
      {static_cast<std::byte*>(blocks.raw()), static_cast<size_t>(blocks.bytes())}, sizes)));
  ops::Dispatch(step.context, step.ops.gather_rows,
                {.x = blocks,
                 .index = device_index,
                 .out = View(logits.raw(), DType::kF32, {rows * ranks, share_size()})});
  return logits;
}

base::Result<BestTokens> DividedHead::Best(const model::Step& step, const tensor::ConstView& normed,
                                           int64_t count) const {
  comm::RankGroup& group = *groups_.tensor_group();
  tensor::Queue& queue = step.context.queue;
  const int64_t rows = normed.size(0);
  tensor::Workspace::Scope scope(step.context.workspace);
  const View logits = scope.Take(DType::kF32, {rows, share_size()});
  const View tokens = scope.Take(DType::kI32, {rows, count});
  const View values = scope.Take(DType::kF32, {rows, count});
  const View log_sums = scope.Take(DType::kF32, {rows});
  model_.Logits(step, normed, logits);
  ops::Dispatch(step.context, step.ops.top_logits,
                {.logits = logits, .tokens = tokens, .values = values, .log_sums = log_sums});
  LONGSPAN_ASSIGN_OR_RETURN(const auto own_tokens, ToHost<int32_t>(backend_, queue, tokens));
  LONGSPAN_ASSIGN_OR_RETURN(const auto own_values, ToHost<float>(backend_, queue, values));
  LONGSPAN_ASSIGN_OR_RETURN(const auto own_log_sums, ToHost<float>(backend_, queue, log_sums));

  // A rank's block: `count` candidates of every row, and one more whose logit is the log-sum.
  const auto ranks = static_cast<size_t>(group.size());
  const auto block_size = static_cast<size_t>(rows * (count + 1));
  std::vector<Candidate> all(ranks * block_size);
  const auto row_of = [&](size_t rank, int64_t row) {
    return std::span(all).subspan(rank * block_size + static_cast<size_t>(row * (count + 1)),
                                  static_cast<size_t>(count + 1));
  };
  const auto first_token = static_cast<int32_t>(group.rank() * share_size());
  for (int64_t row = 0; row < rows; ++row) {
    const auto own = row_of(static_cast<size_t>(group.rank()), row);
    for (int64_t i = 0; i < count; ++i)
      own[i] = {first_token + own_tokens[row * count + i], own_values[row * count + i]};
    own.back().logit = own_log_sums[row];
  }
  const std::vector<size_t> sizes(ranks, block_size * sizeof(Candidate));
  LONGSPAN_RETURN_IF_ERROR(
      groups_.Wait(group.AllGather(std::as_writable_bytes(std::span(all)), sizes)));

  BestTokens best{.count = count * group.size(), .tokens = {}, .logits = {}, .log_sums = {}};
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> parts;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto of_rank = row_of(rank, row);
      parts.push_back(of_rank.back().logit);
      const auto candidates = of_rank.first(static_cast<size_t>(count));
      std::sort(candidates.begin(), candidates.end(),
                [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
      for (const Candidate& candidate : candidates) {
        best.tokens.push_back(candidate.token);
        best.logits.push_back(candidate.logit);
      }
    }
    best.log_sums.push_back(JoinLogSums(parts));
  }
  return best;
}

}  // namespace longspan::runtime
