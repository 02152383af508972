// sample: four kernels, whose numbers are doubles as in the reference. The first reads the logits;
// the second decides for every row what its filters keep; the third draws; the last one reports.
// How a row is cut into parts depends on the size of the vocabulary alone. Where the columns are
// some tokens only, "token" means a column up to the draw and the report.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/device_types.cuh"
#include "backend/cuda/logits.cuh"
#include "backend/cuda/selection.cuh"
#include "backend/cuda/stream.h"
#include "ops/counter_random.h"
#include "tensor/workspace.h"

namespace longspan::backend::cuda {
namespace {

using tensor::DType;

constexpr int kThreads = 256;
constexpr int64_t kPartTokens = 8192;

int64_t PartsOf(int64_t vocab_size) {
  return std::max<int64_t>(1, (vocab_size + kPartTokens - 1) / kPartTokens);
}

// Of a part of a row's logits, as they came.
struct PartLogits {
  double sum;
  float largest;
  int32_t token;  // of the largest
};

struct PartDraw {
  double value;
  int32_t token;  // below 0: none is kept
};

// What is decided of a row before the draw.
struct RowChoice {
  double log_sum;
  double best;    // the largest score
  double cut;     // the worst score that is kept
  int32_t last;   // the last token that is kept with that score
  int32_t token;  // already chosen, or below 0
};

struct SampleRows {
  const float* logits;
  int64_t logits_stride;
  int64_t vocab;
  int64_t parts;
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const int64_t* seed;
  const int64_t* position;
  const float* repetition_penalty;
  const float* frequency_penalty;
  const float* presence_penalty;
  const int32_t* history_begin;
  const int32_t* history_tokens;
  const int32_t* history_counts;
  const int32_t* column_tokens;  // [rows, vocab], or null: column i is token i
  int64_t column_tokens_stride;
  double* scores;           // [rows, vocab], after penalties and temperature
  PartLogits* part_logits;  // [rows, parts]
  PartDraw* part_draws;     // [rows, parts]
  RowChoice* choices;       // [rows]
  int32_t* tokens;
  float* logprobs;

  __device__ bool has_history(int64_t row) const {
    return history_begin[row] != history_begin[row + 1];
  }
  // What scores are divided by.
  __device__ double divisor(int64_t row) const {
    return temperature[row] == 0.0f ? 1.0 : static_cast<double>(temperature[row]);
  }
  __device__ float logit(int64_t row, int64_t column) const {
    return Logit(logits[row * logits_stride + column]);
  }
  __device__ int32_t TokenOf(int64_t row, int64_t column) const {
    return column_tokens == nullptr ? static_cast<int32_t>(column)
                                    : column_tokens[row * column_tokens_stride + column];
  }
};

// Blocks: (row, part).
__global__ void __launch_bounds__(kThreads) ReadLogitsKernel(const SampleRows p) {
  const int64_t row = blockIdx.x;
  const int64_t first = blockIdx.y * kPartTokens;
  const int64_t end = min(first + kPartTokens, p.vocab);
  const bool needs_scores = p.temperature[row] != 0.0f || p.has_history(row);
  const double divisor = p.divisor(row);
  LogSum sum;
  Best<float> best;
  for (int64_t token = first + threadIdx.x; token < end; token += kThreads) {
    const float logit = p.logit(row, token);
    sum.Add(logit);
    best.Take(logit, static_cast<int32_t>(token));
    if (needs_scores) p.scores[row * p.vocab + token] = static_cast<double>(logit) / divisor;
  }
  best = BestOfBlock<kThreads>(best);
  sum = MergeLogSums<kThreads>(sum);
  if (threadIdx.x == 0)
    p.part_logits[row * p.parts + blockIdx.y] = {sum.sum, sum.largest, best.index};
}

__device__ void ApplyPenalties(const SampleRows& p, int64_t row) {
  const double repetition = p.repetition_penalty[row];
  const double frequency = p.frequency_penalty[row];
  const double presence = p.presence_penalty[row];
  for (int32_t i = p.history_begin[row] + static_cast<int32_t>(threadIdx.x);
       i < p.history_begin[row + 1]; i += kSelectThreads) {
    const int32_t token = p.history_tokens[i];
    const int32_t count = p.history_counts[i];
    double score = p.logit(row, token);
    score = score > 0 ? score / repetition : score * repetition;
    score = __dsub_rn(score, __dmul_rn(frequency, static_cast<double>(count)));
    if (count > 0) score -= presence;
    p.scores[row * p.vocab + token] = score / p.divisor(row);
  }
}

// The token of the n-th (from 1) of the scores that equal `score`.
__device__ int32_t NthEqual(const double* scores, int64_t vocab, double score, int64_t n,
                            SelectionScratch& scratch) {
  __shared__ int32_t found;
  int64_t before = 0;
  for (int64_t first = 0; first < vocab && before < n; first += kSelectThreads) {
    const int64_t token = first + threadIdx.x;
    const bool equal = token < vocab && scores[token] == score;
    const unsigned mask = __ballot_sync(kWholeWarp, equal);
    if (threadIdx.x % 32 == 0) scratch.warp_totals[threadIdx.x / 32] = __popc(mask);
    __syncthreads();
    int64_t rank = before + __popc(mask & ((1u << threadIdx.x % 32) - 1)) + 1;
    for (unsigned warp = 0; warp < kSelectThreads / 32; ++warp) {
      const auto count = static_cast<int64_t>(scratch.warp_totals[warp]);
      if (warp < threadIdx.x / 32) rank += count;
      before += count;
    }
    if (equal && rank == n) found = static_cast<int32_t>(token);
    __syncthreads();
  }
  return found;
}

// Shares of the best token's probability in units of 2^-44: the sum of a vocabulary is exact.
__device__ Total ShareOf(double score, double best) {
  const double distance = score - best;
  return distance < -31 ? 0 : static_cast<Total>(__double2ull_rn(exp(distance) * 0x1p44));
}

// What top-k and top-p keep: cut and last. The row's scores are at least one number.
__device__ void KeepLikely(const SampleRows& p, int64_t row, double best, RowChoice& choice,
                           SelectionScratch& scratch) {
  const double* scores = p.scores + row * p.vocab;
  const double top_p = p.top_p[row];
  const int64_t top_k = p.top_k[row] > 0 ? min(int64_t{p.top_k[row]}, p.vocab) : p.vocab;
  const bool by_count = top_k < p.vocab;
  const bool by_share = top_p < 1;
  if (!by_count && !by_share) return;
  for (int i = threadIdx.x; i < kBuckets; i += kSelectThreads) {
    scratch.counts[i] = 0;
    scratch.totals[i] = 0;
  }
  __syncthreads();
  const auto bucket_of = [&](int64_t token) { return BucketOf(best - scores[token]); };
  const auto key_of = [&](int64_t token) { return KeyOf(scores[token]); };
  const auto share_of = [&](uint64_t key) { return ShareOf(ValueOf(key), best); };
  for (int64_t token = threadIdx.x; token < p.vocab; token += kSelectThreads) {
    const int bucket = bucket_of(token);
    atomicAdd(scratch.counts + bucket, 1u);
    const Total share = by_share ? ShareOf(scores[token], best) : 0;
    if (share > 0) atomicAdd(scratch.totals + bucket, share);
  }
  __syncthreads();
  Threshold threshold;
  if (by_count)
    threshold = Select(
        scratch.counts, p.vocab, bucket_of, key_of, [](uint64_t) { return Total{1}; },
        static_cast<Total>(top_k), scratch);
  if (by_share) {
    // Of all that is kept so far.
    Total own = 0;
    if (by_count) {
      for (int64_t token = threadIdx.x; token < p.vocab; token += kSelectThreads)
        if (key_of(token) > threshold.key) own += ShareOf(scores[token], best);
    } else {
      for (int i = threadIdx.x; i < kBuckets; i += kSelectThreads) own += scratch.totals[i];
    }
    own = WarpSum(own);
    if (threadIdx.x % 32 == 0) scratch.warp_totals[threadIdx.x / 32] = own;
    __syncthreads();
    Total all = by_count ? threshold.equal_kept * share_of(threshold.key) : 0;
    for (int warp = 0; warp < kSelectThreads / 32; ++warp) all += scratch.warp_totals[warp];
    __syncthreads();
    const auto target = static_cast<Total>(ceil(top_p * static_cast<double>(all)));
    threshold = Select(scratch.totals, p.vocab, bucket_of, key_of, share_of,
                       target > 0 ? target : 1, scratch);
  }
  choice.cut = ValueOf(threshold.key);
  if (threshold.equal_kept < threshold.equal)
    choice.last = NthEqual(scores, p.vocab, choice.cut, threshold.equal_kept, scratch);
}

// Blocks: row.
__global__ void __launch_bounds__(kSelectThreads) ChooseKernel(const SampleRows p) {
  __shared__ SelectionScratch scratch;
  const int64_t row = blockIdx.x;
  const double* scores = p.scores + row * p.vocab;
  LogSum sum;
  Best<float> largest;
  for (int64_t part = 0; part < p.parts; ++part) {
    const PartLogits& logits = p.part_logits[row * p.parts + part];
    sum.Merge(logits.largest, logits.sum);
    largest.Take(logits.largest, logits.token);
  }
  RowChoice choice = {.log_sum = sum.Value(),
                      .best = largest.value,
                      .cut = kMinusInfinity,
                      .last = INT32_MAX,
                      .token = largest.index};
  const bool greedy = p.temperature[row] == 0.0f;
  if (p.has_history(row)) {
    ApplyPenalties(p, row);
    __syncthreads();
    Best<double> best;
    for (int64_t token = threadIdx.x; token < p.vocab; token += kSelectThreads)
      best.Take(scores[token], static_cast<int32_t>(token));
    best = BestOfBlock<kSelectThreads>(best);
    choice.best = best.value;
    choice.token = best.index;
  } else if (!greedy) {
    choice.best = scores[largest.index];
  }
  if (!greedy && choice.best != kMinusInfinity) {
    choice.token = -1;
    KeepLikely(p, row, choice.best, choice, scratch);
  }
  if (threadIdx.x == 0) p.choices[row] = choice;
}

// Gumbel noise, near enough to tell whether a token can win.
__device__ float RoughNoise(uint64_t bits) {
  const uint64_t count = bits >> 11;
  constexpr uint64_t kAll = (uint64_t{1} << 53) - 1;
  const float below = (__ull2float_rn(count) + 0.5f) * 0x1p-53f;         // u
  const float above = (__ull2float_rn(kAll - count) + 0.5f) * 0x1p-53f;  // 1 - u
  const float exponential = above < 0.5f ? -log1pf(-above) : -logf(below);
  return -logf(exponential);
}

// Blocks: (row, part). The Gumbel-max rule (ops/sample.h).
__global__ void __launch_bounds__(kThreads) DrawKernel(const SampleRows p) {
  constexpr double kRoughError = 1e-3;  // far above that of RoughNoise
  const int64_t row = blockIdx.x;
  const RowChoice choice = p.choices[row];
  if (choice.token >= 0) return;
  const auto seed = static_cast<uint64_t>(p.seed[row]);
  const auto position = static_cast<uint64_t>(p.position[row]);
  const double min_p = p.min_p[row];
  const double* scores = p.scores + row * p.vocab;
  const int64_t first = blockIdx.y * kPartTokens;
  const int64_t end = min(first + kPartTokens, p.vocab);
  Best<double> best;
  for (int64_t token = first + threadIdx.x; token < end; token += kThreads) {
    const double score = scores[token];
    if (score < choice.cut || (score == choice.cut && token > choice.last) ||
        score == kMinusInfinity)
      continue;
    const auto lane = static_cast<uint64_t>(p.TokenOf(row, token));
    if (best.index >= 0 &&
        score + RoughNoise(ops::CounterBits(seed, position, lane)) + kRoughError < best.value)
      continue;
    if (min_p > 0 && exp(score - choice.best) < min_p) continue;
    best.Take(score - log(-log(ops::CounterUniform(seed, position, lane))),
              static_cast<int32_t>(token));
  }
  best = BestOfBlock<kThreads>(best);
  if (threadIdx.x == 0) p.part_draws[row * p.parts + blockIdx.y] = {best.value, best.index};
}

// A warp for every row.
__global__ void __launch_bounds__(kThreads) ReportKernel(const SampleRows p, int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const RowChoice choice = p.choices[row];
  int32_t token = choice.token;
  if (token < 0) {
    Best<double> best;
    for (int64_t part = threadIdx.x % 32; part < p.parts; part += 32) {
      const PartDraw& draw = p.part_draws[row * p.parts + part];
      best.Take(draw.value, draw.token);
    }
    token = BestOfWarp(best).index;
  }
  if (threadIdx.x % 32 != 0) return;
  p.tokens[row] = p.TokenOf(row, token);
  p.logprobs[row] = static_cast<float>(p.logit(row, token) - choice.log_sum);
}

}  // namespace

int64_t SamplingWorkspaceBytes(int, const ops::WorkspaceShape& shape) {
  const auto padded = tensor::Workspace::PaddedBytes;
  const int64_t parts = shape.logit_rows * PartsOf(shape.vocab_size);
  return padded(shape.logit_rows * shape.vocab_size * int64_t{sizeof(double)}) +
         padded(parts * int64_t{sizeof(PartLogits)}) + padded(parts * int64_t{sizeof(PartDraw)}) +
         padded(shape.logit_rows * int64_t{sizeof(RowChoice)});
}

void Sample(ExecutionContext& context, const ops::SampleArgs& args) {
  const int64_t rows = args.logits.size(0);
  if (rows == 0) return;
  const int64_t vocab = args.logits.size(1);
  const int64_t parts = PartsOf(vocab);
  const ops::SamplingTables& tables = args.tables;
  tensor::Workspace::Scope scope(context.workspace);
  const auto take = [&]<typename T>(T*& pointer, int64_t count) {
    pointer = static_cast<T*>(scope.Take(DType::kU8, {count * int64_t{sizeof(T)}}).raw());
  };
  // Null where no row has a history.
  const auto ints = [](const tensor::ConstView& view) {
    return view.empty() ? nullptr : view.data<int32_t>();
  };
  SampleRows p = {.logits = args.logits.data<float>(),
                  .logits_stride = args.logits.stride(0),
                  .vocab = vocab,
                  .parts = parts,
                  .temperature = tables.temperature.data<float>(),
                  .top_k = tables.top_k.data<int32_t>(),
                  .top_p = tables.top_p.data<float>(),
                  .min_p = tables.min_p.data<float>(),
                  .seed = tables.seed.data<int64_t>(),
                  .position = tables.position.data<int64_t>(),
                  .repetition_penalty = tables.repetition_penalty.data<float>(),
                  .frequency_penalty = tables.frequency_penalty.data<float>(),
                  .presence_penalty = tables.presence_penalty.data<float>(),
                  .history_begin = tables.history_begin.data<int32_t>(),
                  .history_tokens = ints(tables.history_tokens),
                  .history_counts = ints(tables.history_counts),
                  .column_tokens = ints(args.column_tokens),
                  .column_tokens_stride = args.column_tokens.stride(0),
                  .tokens = args.tokens.data<int32_t>(),
                  .logprobs = args.logprobs.data<float>()};
  take(p.scores, rows * vocab);
  take(p.part_logits, rows * parts);
  take(p.part_draws, rows * parts);
  take(p.choices, rows);
  const cudaStream_t stream = StreamOf(context);
  const auto blocks = static_cast<unsigned>(rows);
  const dim3 part_blocks(blocks, static_cast<unsigned>(parts));
  ReadLogitsKernel<<<part_blocks, kThreads, 0, stream>>>(p);
  ChooseKernel<<<blocks, kSelectThreads, 0, stream>>>(p);
  DrawKernel<<<part_blocks, kThreads, 0, stream>>>(p);
  constexpr unsigned kRowsOfBlock = kThreads / 32;
  ReportKernel<<<(blocks + kRowsOfBlock - 1) / kRowsOfBlock, kThreads, 0, stream>>>(p, rows);
  NoteLaunch(context, "sample");
}

}  // namespace longspan::backend::cuda
