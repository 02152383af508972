// Sampling: from logits to tokens and log-probabilities.
#pragma once

#include "tensor/execution_context.h"
#include "tensor/view.h"

namespace longspan::ops {

// One entry per row; meanings and order as in spec/sampling.h.
struct SamplingTables {
  tensor::ConstView
      temperature;          // f32 [rows]; 0 is greedy: the largest logit, ties to the lower token
  tensor::ConstView top_k;  // i32 [rows]
  tensor::ConstView top_p;  // f32 [rows]
  tensor::ConstView min_p;  // f32 [rows]
  tensor::ConstView seed;   // i64 [rows], the bits of the unsigned seed
  tensor::ConstView position;            // i64 [rows]: of the token to be drawn
  tensor::ConstView repetition_penalty;  // f32 [rows]
  tensor::ConstView frequency_penalty;   // f32 [rows]
  tensor::ConstView presence_penalty;    // f32 [rows]
  // The distinct tokens of every row's prompt and output (rows without penalties may have none),
  // and how often each stands in the output.
  tensor::ConstView history_begin;   // i32 [rows + 1]
  tensor::ConstView history_tokens;  // i32 [history_begin[rows]]
  tensor::ConstView history_counts;  // i32 [history_begin[rows]]
};

// Draws by the Gumbel-max rule over the kept tokens: the largest of
// logit / temperature + Gumbel(seed, position, token), which is the softmax distribution, needs no
// order of summation, and repeats its choice whenever (seed, position) repeat.
struct SampleArgs {
  tensor::ConstView logits;  // f32 [rows, vocab]
  SamplingTables tables;
  // i32 [rows, vocab], or empty: which token each column is, ascending in every row, where the
  // logits are those of some tokens only. Such rows have no history.
  tensor::ConstView column_tokens;
  tensor::View tokens;    // i32 [rows]
  tensor::View logprobs;  // f32 [rows]: of the token under the plain softmax of the logits
};
using SampleOp = void (*)(tensor::ExecutionContext&, const SampleArgs&);

// The log-probability of given tokens under the softmax of the logits.
struct TokenLogprobArgs {
  tensor::ConstView logits;  // f32 [rows, vocab]
  tensor::ConstView tokens;  // i32 [rows]
  tensor::View logprobs;     // f32 [rows]
};
using TokenLogprobOp = void (*)(tensor::ExecutionContext&, const TokenLogprobArgs&);

// The n most likely tokens of every row, descending, ties to the lower token.
struct TopLogprobsArgs {
  tensor::ConstView logits;  // f32 [rows, vocab]
  tensor::View tokens;       // i32 [rows, n], n at most vocab
  tensor::View logprobs;     // f32 [rows, n]
};
using TopLogprobsOp = void (*)(tensor::ExecutionContext&, const TopLogprobsArgs&);

// What several ranks need of their parts of a vocabulary to choose among all of it: the n largest
// logits of every row, descending, ties to the lower token, and log(sum of exp) of the whole row.
struct TopLogitsArgs {
  tensor::ConstView logits;  // f32 [rows, vocab]
  tensor::View tokens;       // i32 [rows, n], n at most vocab
  tensor::View values;       // f32 [rows, n]
  tensor::View log_sums;     // f32 [rows]
};
using TopLogitsOp = void (*)(tensor::ExecutionContext&, const TopLogitsArgs&);

void CheckArgs(const SampleArgs& args);
void CheckArgs(const TokenLogprobArgs& args);
void CheckArgs(const TopLogprobsArgs& args);
void CheckArgs(const TopLogitsArgs& args);

}  // namespace longspan::ops
