// Planned chunks, untuned, against other policies with the best of many settings for each case.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "plan/chunk_planner.h"
#include "plan/quadratic_chunks.h"

namespace longspan::plan {
namespace {

// Constant time, tokens and attention in the proportions of: a model with dense attention, one
// whose attention is cheap, one that expands latents, and one with sparse attention.
const std::vector<ChunkCost> kModels = {
    {.per_step = 4e-3, .per_token = 5e-6, .per_pair = 4e-11},
    {.per_step = 1.5e-2, .per_token = 2e-5, .per_pair = 5e-12},
    {.per_step = 6e-3, .per_prefix_token = 2e-7, .per_token = 1e-5, .per_pair = 1e-10},
    {.per_step = 8e-3,
     .per_token = 1e-5,
     .per_pair = 2e-10,
     .per_index_pair = 8e-12,
     .per_selected_pair = 4e-10,
     .top_k = 2048}};
constexpr int64_t kLengths[] = {1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20};

PipelineCost Identical(int ranks, const ChunkCost& cost) {
  return {.shape = {.ranks = ranks},
          .stages = std::vector<ChunkCost>(static_cast<size_t>(ranks), cost)};
}

double Fixed(const PipelineCost& cost, int64_t length, int64_t tokens) {
  std::vector<int64_t> ends;
  for (int64_t at = tokens; at < length; at += tokens) ends.push_back(at);
  ends.push_back(length);
  return Predict(cost, 0, std::move(ends)).makespan_s;
}

// With measurements that are free of noise; infinite where the algorithm turns itself off.
double Quadratic(const PipelineCost& cost, int64_t length, int64_t first_tokens, double smoothing) {
  std::vector<LengthSeconds> probes(1);
  for (const int64_t tokens : QuadraticChunks::ProbeLengths(first_tokens))
    probes.push_back({tokens, cost.stages.front().Seconds(0, tokens)});
  const auto time = QuadraticChunks::Fit(probes);
  if (!time.ok()) return std::numeric_limits<double>::infinity();
  const QuadraticChunks chunks(*time, {.first_tokens = first_tokens, .smoothing = smoothing});
  std::vector<int64_t> ends = {std::min(first_tokens, length)};
  while (ends.back() < length)
    ends.push_back(std::min(length, ends.back() + chunks.NextTokens(ends.back())));
  return Predict(cost, 0, std::move(ends)).makespan_s;
}

double BestFixed(const PipelineCost& cost, int64_t length) {
  double best = std::numeric_limits<double>::infinity();
  for (const int64_t tokens : {512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384})
    best = std::min(best, Fixed(cost, length, tokens));
  return best;
}

double BestQuadratic(const PipelineCost& cost, int64_t length) {
  double best = std::numeric_limits<double>::infinity();
  for (const int64_t first : {2048, 4096, 6144, 8192, 12288, 18432})
    for (const double smoothing : {0.55, 0.65, 0.75, 0.85, 1.0})
      best = std::min(best, Quadratic(cost, length, first, smoothing));
  return best;
}

TEST(ChunkPoliciesTest, PlannedIsNeverMuchBehindAnyTunedOne) {
  double worst = 0;
  std::printf("time of others / planned, in the mean of %zu models:\n", kModels.size());
  std::printf("%8s %3s %12s %12s %12s %12s\n", "tokens", "P", "fixed 8192", "best of 10",
              "12288, 0.75", "best of 30");
  for (const int64_t length : kLengths) {
    for (const int ranks : {2, 4, 8, 16}) {
      double fixed = 0;
      double best_fixed = 0;
      double quadratic = 0;
      double best_quadratic = 0;
      for (const ChunkCost& model : kModels) {
        const PipelineCost cost = Identical(ranks, model);
        const double planned = PlanChunks(cost, {.end = length}).makespan_s;
        const double count = static_cast<double>(kModels.size());
        const double tuned_fixed = BestFixed(cost, length) / planned;
        const double tuned_quadratic = BestQuadratic(cost, length) / planned;
        worst = std::max(worst, 1 / std::min(tuned_fixed, tuned_quadratic));
        fixed += Fixed(cost, length, 8192) / planned / count;
        quadratic += Quadratic(cost, length, 12288, 0.75) / planned / count;
        best_fixed += tuned_fixed / count;
        best_quadratic += tuned_quadratic / count;
      }
      std::printf("%8ld %3d %12.3f %12.3f %12.3f %12.3f\n", static_cast<long>(length), ranks, fixed,
                  best_fixed, quadratic, best_quadratic);
    }
  }
  std::printf("at worst %.4f of the best\n", worst);
  EXPECT_LE(worst, 1.005);
}

}  // namespace
}  // namespace longspan::plan
