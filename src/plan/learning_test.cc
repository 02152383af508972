// Plans made while the costs that they are made with are learnt from their own chunks.
#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "plan/chunk_planner.h"
#include "plan/cost_fit.h"

namespace longspan::plan {
namespace {

struct Machine {
  ChunkCost cost;
  int64_t prompt = 0;
  int ranks = 1;
  int64_t most_tokens = 0;
};

PipelineCost Alike(const ChunkCost& cost, int ranks) {
  return {.shape = {.ranks = ranks}, .stages = std::vector<ChunkCost>(ranks, cost)};
}

// Its measurements scatter by 2%, one in twenty is far too long, and so is the second of all.
class LearningRun {
 public:
  LearningRun(const Machine& machine, unsigned seed)
      : machine_(machine), random_(seed), fit_(Alike(Prior(), machine.ranks)) {}

  // How much longer than by the best plan the next prompt takes.
  double Loss() {
    const PipelineCost truth = Alike(machine_.cost, machine_.ranks);
    std::vector<int64_t> ends;
    for (int64_t begin = 0; begin < machine_.prompt; begin = ends.back()) {
      ends.push_back(PlanChunks(fit_.cost(), Request(begin, ends)).ends.front());
      StepWork work;
      work.AddChunk(begin, ends.back(), 0);
      under_way_.emplace_back(work, Measure(work));
      if (std::ssize(under_way_) > machine_.ranks) Learn();
    }
    while (!under_way_.empty()) Learn();
    const double best = Predict(truth, 0, PlanChunks(truth, Request(0, {})).ends).makespan_s;
    return Predict(truth, 0, ends).makespan_s / best - 1;
  }

 private:
  double Factor(double most) {
    return std::exp(std::log(most) * std::uniform_real_distribution<double>(-1, 1)(random_));
  }

  // Off by up to ten as a whole, what a cut costs by five beside the rest.
  ChunkCost Prior() {
    const double level = Factor(10);
    ChunkCost prior = Scaled(machine_.cost, level);
    prior.per_step *= Factor(5);
    prior.per_prefix_token *= Factor(5);
    prior.per_pair *= Factor(1.5);
    return prior;
  }

  ChunkRequest Request(int64_t begin, const std::vector<int64_t>& ends) const {
    ChunkRequest request = {
        .begin = begin, .end = machine_.prompt, .max_tokens = machine_.most_tokens};
    int64_t last = 0;
    for (const int64_t end : ends) {
      request.longest_before_s = std::max(request.longest_before_s, fit_.Seconds(last, end));
      last = end;
    }
    return request;
  }

  std::vector<double> Measure(const StepWork& work) {
    std::vector<double> seconds;
    for (int rank = 0; rank < machine_.ranks; ++rank) {
      double factor = std::exp(std::normal_distribution<double>(0, 0.02)(random_));
      if (random_() % 20 == 0) factor *= 1.8;
      if (steps_ == 1) factor *= 2;
      seconds.push_back(factor * machine_.cost.Seconds(work));
    }
    ++steps_;
    return seconds;
  }

  void Learn() {
    // As the engine does, it leaves out the first one.
    if (std::exchange(is_warm_, true))
      fit_.Add(under_way_.front().first, under_way_.front().second);
    under_way_.pop_front();
  }

  const Machine& machine_;
  std::mt19937 random_;
  PipelineFit fit_;
  std::deque<std::pair<StepWork, std::vector<double>>> under_way_;
  int steps_ = 0;
  bool is_warm_ = false;
};

// Chunks of about one time are all that a fit sees of its own plans: what a cut costs must not
// drift away on their noise.
TEST(LearningTest, TheFirstPromptIsCutWellAndTheNextOnesVeryWell) {
  const std::vector<Machine> machines = {
      // Small models on two cores.
      {{.per_step = 5e-5, .per_prefix_token = 4.5e-7, .per_token = 5.1e-5, .per_pair = 4.8e-8},
       15'779,
       2,
       4096},
      {{.per_step = 1e-3, .per_prefix_token = 1e-6, .per_token = 1e-3, .per_pair = 3e-7},
       16'384,
       2,
       2048},
      // Large ones on GPUs.
      {{.per_step = 4e-3, .per_prefix_token = 2e-8, .per_token = 1.2e-5, .per_pair = 6e-11},
       131'072,
       8,
       32'768},
      {{.per_step = 1e-3, .per_prefix_token = 1e-8, .per_token = 3e-6, .per_pair = 2e-11},
       131'072,
       4,
       16'384},
      // Steps that cost much by themselves.
      {{.per_step = 2e-2, .per_token = 5e-5, .per_pair = 4.8e-8}, 15'779, 4, 4096}};
  constexpr unsigned kSeeds = 2;
  for (size_t i = 0; i < machines.size(); ++i) {
    double first = 0;
    double later = 0;
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      LearningRun run(machines[i], seed);
      first += run.Loss() / kSeeds;
      later += (run.Loss() + run.Loss()) / (2 * kSeeds);
    }
    EXPECT_LE(first, 0.08) << i;
    EXPECT_LE(later, 0.015) << i;
  }
}

}  // namespace
}  // namespace longspan::plan
