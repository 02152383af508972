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

// What a rank has of all rows, one after the other: `count` tokens and as many logits of every row,
// and the log-sums of all.
struct Block {
  int64_t rows;
  int64_t count;

  int64_t words() const { return rows * (2 * count + 1); }
  View Part(const View& block, int64_t begin, DType type,
            std::initializer_list<int64_t> sizes) const {
    return {static_cast<int32_t*>(block.raw()) + begin, type, sizes};
  }
  View Tokens(const View& block) const { return Part(block, 0, DType::kI32, {rows, count}); }
  View Logits(const View& block) const {
    return Part(block, rows * count, DType::kF32, {rows, count});
  }
  View LogSums(const View& block) const {
    return Part(block, 2 * rows * count, DType::kF32, {rows});
  }
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
  const Block shape = {rows, count};
  const View all = scope.Take(DType::kI32, {group.size(), shape.words()});
  const View own = all.Rows(group.rank(), 1);
  model_.Logits(step, normed, logits);
  ops::Dispatch(step.context, step.ops.top_logits,
                {.logits = logits,
                 .tokens = shape.Tokens(own),
                 .values = shape.Logits(own),
                 .log_sums = shape.LogSums(own)});
  const auto ranks = static_cast<size_t>(group.size());
  const std::vector<size_t> sizes(ranks, static_cast<size_t>(own.bytes()));
  LONGSPAN_RETURN_IF_ERROR(groups_.Wait(group.AllGather(
      {static_cast<std::byte*>(all.raw()), static_cast<size_t>(all.bytes())}, sizes)));
  LONGSPAN_ASSIGN_OR_RETURN(auto words, ToHost<int32_t>(backend_, queue, all));

  BestTokens best{.count = count * group.size(), .tokens = {}, .logits = {}, .log_sums = {}};
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> parts;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      const View block(words.data() + rank * shape.words(), DType::kI32, {1, shape.words()});
      parts.push_back(shape.LogSums(block).data<float>()[row]);
      const auto* tokens = shape.Tokens(block).row<int32_t>(row);
      const auto* values = shape.Logits(block).row<float>(row);
      std::vector<Candidate> candidates;
      for (int64_t i = 0; i < count; ++i)
        candidates.push_back({static_cast<int32_t>(rank * share_size()) + tokens[i], values[i]});
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
