// token_logprob, top_logprobs and top_logits: a block for every row.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/logits.cuh"
#include "backend/cuda/selection.cuh"
#include "backend/cuda/stream.h"

namespace longspan::backend::cuda {
namespace {

constexpr int kThreads = kSelectThreads;

// Of a row of logits, in every thread.
struct RowSums {
  float largest;
  double log_sum;
};

__device__ RowSums SumRow(const float* logits, int64_t vocab) {
  __shared__ RowSums shared;
  LogSum sum;
  for (int64_t token = threadIdx.x; token < vocab; token += kThreads) sum.Add(Logit(logits[token]));
  sum = MergeLogSums<kThreads>(sum);
  if (threadIdx.x == 0) shared = {sum.largest, sum.Value()};
  __syncthreads();
  return shared;
}

__global__ void __launch_bounds__(kThreads)
    TokenLogprobKernel(const float* logits, int64_t stride, int64_t vocab, const int32_t* tokens,
                       float* logprobs) {
  const int64_t row = blockIdx.x;
  const RowSums sums = SumRow(logits + row * stride, vocab);
  if (threadIdx.x == 0)
    logprobs[row] = static_cast<float>(Logit(logits[row * stride + tokens[row]]) - sums.log_sum);
}

struct TopRows {
  const float* logits;
  int64_t logits_stride;
  int64_t vocab;
  int64_t count;  // tokens of a row
  int32_t* tokens;
  int64_t tokens_stride;
  float* logprobs;  // or where log_sums are wanted, the logits themselves
  int64_t logprobs_stride;
  float* log_sums;  // or null
};

// All keys of a row differ: the logit, then the lower token.
__device__ uint64_t TokenKey(float logit, int64_t token) {
  return static_cast<uint64_t>(KeyOf(logit)) << 32 | ~static_cast<uint32_t>(token);
}
__device__ int32_t TokenOf(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// The `count` best tokens with keys below `limit`, in order, from place `first` on; returns the
// last one's key.
__device__ uint64_t ReportBest(const TopRows& p, const RowSums& sums, uint64_t limit, int64_t first,
                               int64_t count, SelectionScratch& scratch) {
  const int64_t row = blockIdx.x;
  const float* logits = p.logits + row * p.logits_stride;
  for (int i = threadIdx.x; i < kBuckets; i += kThreads) scratch.counts[i] = 0;
  __syncthreads();
  const auto key_of = [&](int64_t token) { return TokenKey(Logit(logits[token]), token); };
  const auto bucket_of = [&](int64_t token) {
    if (key_of(token) >= limit) return -1;
    const float logit = Logit(logits[token]);
    return logit == kMinusInfinity ? kBuckets - 1
                                   : BucketOf(static_cast<double>(sums.largest) - logit);
  };
  for (int64_t token = threadIdx.x; token < p.vocab; token += kThreads)
    if (const int bucket = bucket_of(token); bucket >= 0) atomicAdd(scratch.counts + bucket, 1u);
  __syncthreads();
  const Threshold threshold = Select(
      scratch.counts, p.vocab, bucket_of, key_of, [](uint64_t) { return Total{1}; },
      static_cast<Total>(count), scratch);
  if (threadIdx.x == 0) scratch.listed = 0;
  __syncthreads();
  for (int64_t token = threadIdx.x; token < p.vocab; token += kThreads) {
    const uint64_t key = key_of(token);
    if (key >= threshold.key && key < limit) scratch.list[atomicAdd(&scratch.listed, 1)] = key;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    const uint64_t key = scratch.list[i];
    int64_t place = first;
    for (int64_t other = 0; other < count; ++other) place += scratch.list[other] > key ? 1 : 0;
    const int32_t token = TokenOf(key);
    p.tokens[row * p.tokens_stride + place] = token;
    p.logprobs[row * p.logprobs_stride + place] =
        p.log_sums != nullptr ? logits[token]
                              : static_cast<float>(Logit(logits[token]) - sums.log_sum);
  }
  __syncthreads();
  return threshold.key;
}

__global__ void __launch_bounds__(kThreads) TopLogprobsKernel(const TopRows p) {
  __shared__ SelectionScratch scratch;
  const RowSums sums = SumRow(p.logits + blockIdx.x * p.logits_stride, p.vocab);
  if (p.log_sums != nullptr && threadIdx.x == 0)
    p.log_sums[blockIdx.x] = static_cast<float>(sums.log_sum);
  uint64_t limit = ~uint64_t{0};
  for (int64_t first = 0; first < p.count; first += kListed)
    limit = ReportBest(p, sums, limit, first, min(int64_t{kListed}, p.count - first), scratch);
}

}  // namespace

void TokenLogprob(ExecutionContext& context, const ops::TokenLogprobArgs& args) {
  const int64_t rows = args.logits.size(0);
  if (rows == 0) return;
  TokenLogprobKernel<<<static_cast<unsigned>(rows), kThreads, 0, StreamOf(context)>>>(
      args.logits.data<float>(), args.logits.stride(0), args.logits.size(1),
      args.tokens.data<int32_t>(), args.logprobs.data<float>());
  NoteLaunch(context, "token_logprob");
}

void TopLogprobs(ExecutionContext& context, const ops::TopLogprobsArgs& args) {
  const int64_t rows = args.logits.size(0);
  if (rows == 0 || args.tokens.size(1) == 0) return;
  TopLogprobsKernel<<<static_cast<unsigned>(rows), kThreads, 0, StreamOf(context)>>>(
      {.logits = args.logits.data<float>(),
       .logits_stride = args.logits.stride(0),
       .vocab = args.logits.size(1),
       .count = args.tokens.size(1),
       .tokens = args.tokens.data<int32_t>(),
       .tokens_stride = args.tokens.stride(0),
       .logprobs = args.logprobs.data<float>(),
       .logprobs_stride = args.logprobs.stride(0),
       .log_sums = nullptr});
  NoteLaunch(context, "top_logprobs");
}

void TopLogits(ExecutionContext& context, const ops::TopLogitsArgs& args) {
  const int64_t rows = args.logits.size(0);
  if (rows == 0) return;
  TopLogprobsKernel<<<static_cast<unsigned>(rows), kThreads, 0, StreamOf(context)>>>(
      {.logits = args.logits.data<float>(),
       .logits_stride = args.logits.stride(0),
       .vocab = args.logits.size(1),
       .count = args.tokens.size(1),
       .tokens = args.tokens.data<int32_t>(),
       .tokens_stride = args.tokens.stride(0),
       .logprobs = args.values.data<float>(),
       .logprobs_stride = args.values.stride(0),
       .log_sums = args.log_sums.data<float>()});
  NoteLaunch(context, "top_logits");
}

}  // namespace longspan::backend::cuda
