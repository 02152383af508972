#include "runtime/sampler.h"

#include <algorithm>
#include <numeric>

#include "runtime/host_copy.h"
#include "runtime/listed_rows.h"

namespace longspan::runtime {
namespace {

using tensor::DType;
using tensor::View;

// The sampling parameters of a block of rows, as the op wants them.
struct HostSampling {
  std::vector<float> temperature, top_p, min_p, repetition, frequency, presence;
  std::vector<int32_t> top_k, history_begin = {0}, history_tokens, history_counts;
  std::vector<int64_t> seed, position;

  void Add(const spec::SamplingSpec& sampling, const std::map<int32_t, int32_t>& history,
           int64_t next_position) {
    temperature.push_back(static_cast<float>(sampling.temperature));
    top_k.push_back(sampling.top_k);
    top_p.push_back(static_cast<float>(sampling.top_p));
    min_p.push_back(static_cast<float>(sampling.min_p));
    seed.push_back(static_cast<int64_t>(sampling.seed));
    position.push_back(next_position);
    repetition.push_back(static_cast<float>(sampling.repetition_penalty));
    frequency.push_back(static_cast<float>(sampling.frequency_penalty));
    presence.push_back(static_cast<float>(sampling.presence_penalty));
    for (const auto& [token, count] : history) {
      history_tokens.push_back(token);
      history_counts.push_back(count);
    }
    history_begin.push_back(static_cast<int32_t>(history_tokens.size()));
  }
};

base::Result<ops::SamplingTables> Upload(const ops::Backend& backend, tensor::Queue& queue,
                                         tensor::Workspace::Scope& scope,
                                         const HostSampling& host) {
  ops::SamplingTables tables;
  LONGSPAN_ASSIGN_OR_RETURN(tables.temperature, ToDevice(backend, queue, scope, host.temperature));
  LONGSPAN_ASSIGN_OR_RETURN(tables.top_k, ToDevice(backend, queue, scope, host.top_k));
  LONGSPAN_ASSIGN_OR_RETURN(tables.top_p, ToDevice(backend, queue, scope, host.top_p));
  LONGSPAN_ASSIGN_OR_RETURN(tables.min_p, ToDevice(backend, queue, scope, host.min_p));
  LONGSPAN_ASSIGN_OR_RETURN(tables.seed, ToDevice(backend, queue, scope, host.seed));
  LONGSPAN_ASSIGN_OR_RETURN(tables.position, ToDevice(backend, queue, scope, host.position));
  LONGSPAN_ASSIGN_OR_RETURN(tables.repetition_penalty,
                            ToDevice(backend, queue, scope, host.repetition));
  LONGSPAN_ASSIGN_OR_RETURN(tables.frequency_penalty,
                            ToDevice(backend, queue, scope, host.frequency));
  LONGSPAN_ASSIGN_OR_RETURN(tables.presence_penalty,
                            ToDevice(backend, queue, scope, host.presence));
  LONGSPAN_ASSIGN_OR_RETURN(tables.history_begin,
                            ToDevice(backend, queue, scope, host.history_begin));
  LONGSPAN_ASSIGN_OR_RETURN(tables.history_tokens,
                            ToDevice(backend, queue, scope, host.history_tokens));
  LONGSPAN_ASSIGN_OR_RETURN(tables.history_counts,
                            ToDevice(backend, queue, scope, host.history_counts));
  return tables;
}

}  // namespace

int64_t Sampler::ScratchBytes(int64_t rows, const Shape& shape, DType compute) {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t block = std::min(rows, kBlockRows);
  const int64_t hidden = padded(block * shape.hidden_size * tensor::SizeOf(compute));
  const int64_t vocab = padded(block * shape.vocab_size * 4);
  // Rows before and after the norm, logits; parameters and results of at most 8 bytes a
  // row; the distinct tokens of every row twice (tokens and counts); as many alternatives with ids
  // and values. Of a divided vocabulary also what the ranks have, with an index, or the best of it.
  const int64_t divided = shape.ranks > 1 ? vocab + padded(4 * block * shape.ranks) : 0;
  return GatherListedScratchBytes(block, shape.hidden_size, compute) + hidden + vocab +
         16 * padded(8 * (block + 1)) + 4 * vocab + divided;
}

void Sampler::Apply(const plan::StepPlan& plan) {
  for (const plan::SequenceId id : plan.released) sequences_.erase(id);
  for (const plan::SequenceStart& start : plan.started) {
    Sequence sequence{.sampling = start.sampling, .history = {}};
    for (const int32_t token : start.prompt) sequence.history.emplace(token, 0);
    for (const int32_t token : start.output) ++sequence.history[token];
    sequences_.insert_or_assign(start.sequence, std::move(sequence));
  }
}

const Sampler::Sequence& Sampler::SequenceOf(const plan::StepPlan& plan, uint32_t slot) const {
  return sequences_.at(plan.slices[plan.logits_rows[slot].slice].sequence);
}

base::Status Sampler::Run(const model::Step& step, const plan::StepPlan& plan,
                          const tensor::ConstView& residual, std::span<const ListedRow> listed,
                          plan::StepResult& result) {
  // Rows that draw a token go first, so that only their blocks pay for sampling, and of a divided
  // vocabulary those before the others that few logits decide: how a row is computed must not
  // depend on its company.
  std::vector<uint32_t> slots(plan.logits_rows.size());
  std::iota(slots.begin(), slots.end(), 0u);
  const auto score_begin = std::stable_partition(
      slots.begin(), slots.end(), [&](uint32_t slot) { return plan.logits_rows[slot].sample; });
  const auto undecided_begin = std::stable_partition(
      slots.begin(), score_begin, [&](uint32_t slot) { return DecidingLogits(plan, slot) > 0; });
  const auto decided = static_cast<size_t>(undecided_begin - slots.begin());
  const auto samples = static_cast<size_t>(score_begin - slots.begin());
  for (size_t begin = 0; begin < slots.size();) {
    const size_t group_end = begin < decided ? decided : begin < samples ? samples : slots.size();
    const size_t end = std::min(group_end, begin + static_cast<size_t>(kBlockRows));
    LONGSPAN_RETURN_IF_ERROR(RunBlock(step, plan, residual, listed,
                                      std::span(slots).subspan(begin, end - begin), result));
    begin = end;
  }
  return base::OkStatus();
}

base::Status Sampler::RunBlock(const model::Step& step, const plan::StepPlan& plan,
                               const tensor::ConstView& residual, std::span<const ListedRow> listed,
                               std::span<const uint32_t> slots, plan::StepResult& result) {
  tensor::Queue& queue = step.context.queue;
  tensor::Workspace::Scope scope(step.context.workspace);
  std::vector<ListedRow> of_block;
  for (const uint32_t slot : slots) of_block.push_back(listed[slot]);
  LONGSPAN_ASSIGN_OR_RETURN(const View gathered,
                            GatherListed(backend_, groups_, step, residual, of_block, scope));
  const View normed = scope.Take(residual.dtype(), {gathered.size(0), residual.size(1)});
  model_.FinalNorm(step, gathered, normed);

  std::vector<plan::RowResult> block(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    block[i].slot = slots[i];
    if (!plan.logits_rows[slots[i]].return_hidden) continue;
    LONGSPAN_ASSIGN_OR_RETURN(
        auto values, FloatsToHost(backend_, queue, normed.Rows(static_cast<int64_t>(i), 1)));
    result.hidden.push_back({slots[i], model_.part().ranges.back().end, std::move(values)});
  }
  int64_t deciding = DecidingLogits(plan, slots[0]);
  for (const uint32_t slot : slots.subspan(1))
    deciding = std::max(deciding, DecidingLogits(plan, slot));
  if (deciding > 0) {
    LONGSPAN_ASSIGN_OR_RETURN(const BestTokens best, divided_head_->Best(step, normed, deciding));
    LONGSPAN_RETURN_IF_ERROR(SampleAmongBest(step, plan, slots, best, block));
  } else {
    LONGSPAN_ASSIGN_OR_RETURN(const View logits, Logits(step, normed, scope));
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!plan.logits_rows[slots[i]].return_logits) continue;
      LONGSPAN_ASSIGN_OR_RETURN(
          block[i].logits, ToHost<float>(backend_, queue, logits.Rows(static_cast<int64_t>(i), 1)));
    }
    LONGSPAN_RETURN_IF_ERROR(plan.logits_rows[slots[0]].sample
                                 ? Sample(step, plan, slots, logits, block)
                                 : Score(step, plan, slots, logits, block));
  }
  std::move(block.begin(), block.end(), std::back_inserter(result.rows));
  return base::OkStatus();
}

base::Status Sampler::AddBias(const model::Step& step, const plan::StepPlan& plan,
                              std::span<const uint32_t> slots, const View& logits) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto& bias = SequenceOf(plan, slots[i]).sampling.logit_bias;
    if (bias.empty()) continue;
    const View row = logits.Rows(static_cast<int64_t>(i), 1);
    LONGSPAN_ASSIGN_OR_RETURN(auto values, ToHost<float>(backend_, step.context.queue, row));
    for (const auto& [token, value] : bias) {
      if (token < 0 || token >= vocab_size_)
        return base::DataLoss(
            "a plan has a logit bias for token {}, which is not in the vocabulary", token);
      values[static_cast<size_t>(token)] += value;
    }
    LONGSPAN_RETURN_IF_ERROR(
        backend_.Upload(step.context.queue, std::as_bytes(std::span(values)), row));
  }
  return base::OkStatus();
}

base::Result<View> Sampler::Logits(const model::Step& step, const tensor::ConstView& normed,
                                   tensor::Workspace::Scope& scope) const {
  if (divided_head_) return divided_head_->AllLogits(step, normed, scope);
  const View logits = scope.Take(DType::kF32, {normed.size(0), vocab_size_});
  model_.Logits(step, normed, logits);
  return logits;
}

int64_t Sampler::DecidingLogits(const plan::StepPlan& plan, uint32_t slot) const {
  const plan::LogitsRow& row = plan.logits_rows[slot];
  if (!divided_head_ || !row.sample || row.return_logits) return 0;
  const spec::SamplingSpec& sampling = SequenceOf(plan, slot).sampling;
  const bool greedy = sampling.temperature == 0;
  // A bias or a penalty may lift any token above the others.
  if (!sampling.logit_bias.empty() || sampling.has_penalties() || (!greedy && sampling.top_k == 0))
    return 0;
  const int64_t deciding = std::max({1, greedy ? 1 : sampling.top_k, sampling.top_logprobs});
  // Of a large part of the vocabulary the logits alone are less to exchange.
  return deciding <= divided_head_->share_size() / 4 ? deciding : 0;
}

base::Status Sampler::SampleAmongBest(const model::Step& step, const plan::StepPlan& plan,
                                      std::span<const uint32_t> slots, const BestTokens& best,
                                      std::span<plan::RowResult> rows) {
  tensor::Queue& queue = step.context.queue;
  HostSampling host;
  for (const uint32_t slot : slots)
    host.Add(SequenceOf(plan, slot).sampling, {}, plan.logits_rows[slot].position + 1);
  tensor::Workspace::Scope scope(step.context.workspace);
  LONGSPAN_ASSIGN_OR_RETURN(const auto tables, Upload(backend_, queue, scope, host));
  LONGSPAN_ASSIGN_OR_RETURN(const View logits, ToDevice(backend_, queue, scope, best.logits));
  LONGSPAN_ASSIGN_OR_RETURN(const View columns, ToDevice(backend_, queue, scope, best.tokens));
  const auto count = static_cast<int64_t>(slots.size());
  const View tokens = scope.Take(DType::kI32, {count});
  const View logprobs = scope.Take(DType::kF32, {count});
  ops::Dispatch(step.context, step.ops.sample,
                {.logits = View(logits.raw(), DType::kF32, {count, best.count}),
                 .tables = tables,
                 .column_tokens = View(columns.raw(), DType::kI32, {count, best.count}),
                 .tokens = tokens,
                 .logprobs = logprobs});
  LONGSPAN_ASSIGN_OR_RETURN(const auto sampled, ToHost<int32_t>(backend_, queue, tokens));
  for (size_t i = 0; i < slots.size(); ++i) {
    std::vector<std::pair<int32_t, float>> alternatives = best.Logprobs(i);
    const auto chosen =
        std::find_if(alternatives.begin(), alternatives.end(),
                     [&](const auto& alternative) { return alternative.first == sampled[i]; });
    rows[i].token = sampled[i];
    rows[i].logprob = chosen->second;
    alternatives.resize(static_cast<size_t>(SequenceOf(plan, slots[i]).sampling.top_logprobs));
    rows[i].top_logprobs = std::move(alternatives);
  }
  return base::OkStatus();
}

base::Status Sampler::Sample(const model::Step& step, const plan::StepPlan& plan,
                             std::span<const uint32_t> slots, const View& logits,
                             std::span<plan::RowResult> rows) {
  tensor::Queue& queue = step.context.queue;
  LONGSPAN_RETURN_IF_ERROR(AddBias(step, plan, slots, logits));
  HostSampling host;
  for (const uint32_t slot : slots) {
    const Sequence& sequence = SequenceOf(plan, slot);
    host.Add(sequence.sampling, sequence.history, plan.logits_rows[slot].position + 1);
  }
  tensor::Workspace::Scope scope(step.context.workspace);
  LONGSPAN_ASSIGN_OR_RETURN(const auto tables, Upload(backend_, queue, scope, host));
  const View tokens = scope.Take(DType::kI32, {logits.size(0)});
  const View logprobs = scope.Take(DType::kF32, {logits.size(0)});
  ops::Dispatch(step.context, step.ops.sample,
                {.logits = logits, .tables = tables, .tokens = tokens, .logprobs = logprobs});
  LONGSPAN_ASSIGN_OR_RETURN(const auto host_tokens, ToHost<int32_t>(backend_, queue, tokens));
  LONGSPAN_ASSIGN_OR_RETURN(const auto host_logprobs, ToHost<float>(backend_, queue, logprobs));
  for (size_t i = 0; i < slots.size(); ++i) {
    rows[i].token = host_tokens[i];
    rows[i].logprob = host_logprobs[i];
    Sequence& sequence = sequences_.at(plan.slices[plan.logits_rows[slots[i]].slice].sequence);
    if (sequence.sampling.has_penalties()) ++sequence.history[host_tokens[i]];
  }
  return AddAlternatives(step, plan, slots, logits, rows);
}

base::Status Sampler::Score(const model::Step& step, const plan::StepPlan& plan,
                            std::span<const uint32_t> slots, const tensor::ConstView& logits,
                            std::span<plan::RowResult> rows) {
  tensor::Queue& queue = step.context.queue;
  tensor::Workspace::Scope scope(step.context.workspace);
  std::vector<int32_t> targets;
  // A row that only returns its logits has no token to score; any valid one keeps the block whole.
  for (const uint32_t slot : slots)
    targets.push_back(std::max(0, plan.logits_rows[slot].score_token));
  LONGSPAN_ASSIGN_OR_RETURN(const View tokens, ToDevice(backend_, queue, scope, targets));
  const View logprobs = scope.Take(DType::kF32, {logits.size(0)});
  ops::Dispatch(step.context, step.ops.token_logprob,
                {.logits = logits, .tokens = tokens, .logprobs = logprobs});
  LONGSPAN_ASSIGN_OR_RETURN(const auto values, ToHost<float>(backend_, queue, logprobs));
  for (size_t i = 0; i < slots.size(); ++i)
    if (plan.logits_rows[slots[i]].score_token >= 0) rows[i].logprob = values[i];
  return AddAlternatives(step, plan, slots, logits, rows);
}

base::Status Sampler::AddAlternatives(const model::Step& step, const plan::StepPlan& plan,
                                      std::span<const uint32_t> slots,
                                      const tensor::ConstView& logits,
                                      std::span<plan::RowResult> rows) {
  std::vector<int64_t> wanted;
  for (const uint32_t slot : slots)
    wanted.push_back(std::min<int64_t>(SequenceOf(plan, slot).sampling.top_logprobs, vocab_size_));
  const int64_t n = *std::max_element(wanted.begin(), wanted.end());
  if (n == 0) return base::OkStatus();
  tensor::Queue& queue = step.context.queue;
  tensor::Workspace::Scope scope(step.context.workspace);
  const View tokens = scope.Take(DType::kI32, {logits.size(0), n});
  const View logprobs = scope.Take(DType::kF32, {logits.size(0), n});
  ops::Dispatch(step.context, step.ops.top_logprobs,
                {.logits = logits, .tokens = tokens, .logprobs = logprobs});
  LONGSPAN_ASSIGN_OR_RETURN(const auto host_tokens, ToHost<int32_t>(backend_, queue, tokens));
  LONGSPAN_ASSIGN_OR_RETURN(const auto host_logprobs, ToHost<float>(backend_, queue, logprobs));
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t j = 0; j < wanted[i]; ++j)
      rows[i].top_logprobs.emplace_back(host_tokens[i * n + j], host_logprobs[i * n + j]);
  return base::OkStatus();
}

}  // namespace longspan::runtime
