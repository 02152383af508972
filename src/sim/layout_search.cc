#include "sim/layout_search.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "plan/block_share.h"
#include "plan/chunk_planner.h"
#include "plan/expert_share.h"
#include "plan/pipeline_schedule.h"
#include "plan/tensor_share.h"
#include "sim/stage_split.h"
#include "sim/virtual_pipeline.h"

namespace longspan::sim {
namespace {

constexpr int64_t kLeastChunk = 1024;
constexpr int64_t kMostChunk = 32768;

plan::Deployment DeploymentOf(const SearchRequest& request, const spec::Mesh& mesh,
                              int64_t kv_bytes) {
  return {.model = request.model,
          .mesh = mesh,
          .hardware = request.hardware,
          .precision = {.fp8_weights = request.fp8_weights, .kv_bytes = kv_bytes},
          .kv_placement = request.kv_placement,
          .node_link = request.node_link};
}

// What no arithmetic could do, whatever is let pass.
base::Status CheckShares(const SearchRequest& request, const spec::Mesh& mesh) {
  LONGSPAN_RETURN_IF_ERROR(spec::CheckMesh(mesh));
  LONGSPAN_RETURN_IF_ERROR(plan::CheckTensorShares(request.model, mesh.tp));
  return plan::CheckExpertShares(request.model, mesh);
}

// The times of all chunks, and what comes of them.
class Timeline {
 public:
  Timeline(const plan::HardwareCost& cost, const Layout& layout)
      : cost_(cost), layout_(layout), ranks_(layout.mesh.pp) {}

  void Fill(Layout& layout) const {
    const size_t chunks = layout_.chunk_ends.size();
    layout.ttft_s = Makespan();
    double all = 0;
    double slowest = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      plan::StepSeconds parts;
      for (size_t chunk = 0; chunk < chunks; ++chunk) {
        double seconds = 0;
        for (int loop = 0; loop < layout_.loops; ++loop) {
          const plan::StepSeconds step = Step(chunk, rank, loop);
          Add(step, parts);
          seconds += step.total();
        }
        layout.longest_chunk_s = std::max(layout.longest_chunk_s, seconds);
      }
      all += parts.total();
      if (parts.total() <= slowest) continue;
      slowest = parts.total();
      layout.parts = parts;
    }
    layout.busy_share = all / (ranks_ * layout.ttft_s);
    layout.tokens_per_s = static_cast<double>(layout_.chunk_ends.back()) / slowest;
  }

 private:
  plan::StepSeconds Step(size_t chunk, int rank, int loop) const {
    const auto& ends = layout_.chunk_ends;
    const plan::RowRange slice = {chunk == 0 ? 0 : ends[chunk - 1], ends[chunk]};
    const auto stage =
        static_cast<size_t>(loop) * static_cast<size_t>(ranks_) + static_cast<size_t>(rank);
    return cost_.Step(layout_.stages[stage], {&slice, 1}, chunk + 1 == ends.size() ? 1 : 0);
  }

  // On the stages and links of the simulator, so that a search and a run mean the same.
  double Makespan() const {
    const auto& ends = layout_.chunk_ends;
    const auto rows = [&ends](size_t chunk) {
      return ends[chunk] - (chunk == 0 ? 0 : ends[chunk - 1]);
    };
    VirtualPipeline pipeline(
        ranks_, layout_.loops,
        {.compute_s = [this](const plan::StepPlan& plan, int rank,
                             int loop) { return Step(plan.number.value, rank, loop).total(); },
         .transfer_s =
             [this, rows](const plan::StepPlan& plan, int rank) {
               return cost_.BoundarySeconds(rank, rows(plan.number.value));
             },
         .latency_s = [this](int rank) { return cost_.BoundaryLatency(rank); }});
    const auto groups =
        plan::FullGroups(static_cast<int>(ends.size()), plan::GroupSize(ranks_, layout_.loops));
    Time last = 0;
    for (size_t chunk = 0; chunk < ends.size(); ++chunk) {
      plan::StepPlan plan;
      plan.number = {chunk};
      plan.ends_group = groups[chunk];
      for (const StageWork& work : pipeline.Add(plan, 0)) last = std::max(last, work.timing.end);
    }
    return 1e-9 * static_cast<double>(last);
  }

  static void Add(const plan::StepSeconds& step, plan::StepSeconds& sum) {
    sum.products += step.products;
    sum.attention += step.attention;
    sum.memory += step.memory;
    sum.collectives += step.collectives;
    sum.tensor += step.tensor;
    sum.context += step.context;
    sum.expert += step.expert;
    sum.launches += step.launches;
    sum.head += step.head;
  }

  const plan::HardwareCost& cost_;
  const Layout& layout_;
  int ranks_;
};

// Of the fullest rank, for steps of so many rows.
plan::MemoryUse FullestRank(const plan::Deployment& deployment, const Layout& layout,
                            int64_t rows) {
  plan::MemoryUse fullest;
  for (int rank = 0; rank < layout.mesh.pp; ++rank) {
    const auto ranges = plan::RangesOfRank(layout.stages, layout.mesh.pp, rank);
    const plan::MemoryUse use = plan::MemoryOfRank(deployment, ranges, rows);
    fullest.weight_bytes = std::max(fullest.weight_bytes, use.weight_bytes);
    fullest.kv_bytes_per_token = std::max(fullest.kv_bytes_per_token, use.kv_bytes_per_token);
    fullest.workspace_bytes = std::max(fullest.workspace_bytes, use.workspace_bytes);
  }
  return fullest;
}

// Tokens of KV that fit, or why not even the prompt does.
base::Result<int64_t> KvTokens(const SearchRequest& request, const plan::MemoryUse& use) {
  constexpr double kGb = 1e9;
  const double left = request.hardware.memory_bytes - use.weight_bytes - use.workspace_bytes;
  const auto tokens =
      static_cast<int64_t>(std::max(0.0, left) * request.memory_fraction / use.kv_bytes_per_token);
  if (tokens > request.prompt_tokens) return tokens;
  return base::ResourceExhausted(
      "weights of {:.0f} GB and a KV cache of {:.0f} GB for the prompt do not fit a GPU of {:.0f} "
      "GB",
      use.weight_bytes / kGb,
      use.kv_bytes_per_token * static_cast<double>(request.prompt_tokens) / kGb,
      request.hardware.memory_bytes / kGb);
}

// All meshes of so many GPUs.
std::vector<spec::Mesh> Meshes(int gpus) {
  std::vector<spec::Mesh> meshes;
  for (int pp = 1; pp <= gpus; ++pp) {
    if (gpus % pp != 0) continue;
    const int lanes = gpus / pp;
    for (int cp = 1; cp <= lanes; ++cp) {
      if (lanes % cp != 0) continue;
      for (int ep = 1; ep <= lanes; ++ep)
        if (lanes % ep == 0) meshes.push_back({.pp = pp, .cp = cp, .tp = lanes / cp, .ep = ep});
    }
  }
  return meshes;
}

}  // namespace

base::Status CheckServable(const SearchRequest& request, const spec::Mesh& mesh) {
  LONGSPAN_RETURN_IF_ERROR(CheckShares(request, mesh));
  if (request.weight_block > 0)
    LONGSPAN_RETURN_IF_ERROR(plan::CheckBlockShares(request.model, mesh, request.weight_block));
  const int per_node = request.hardware.gpus_per_node;
  if (mesh.stage_ranks() <= per_node) return base::OkStatus();
  return base::InvalidArgument(
      "the {} ranks of a stage do not lie within a node of {} GPUs: use a higher --pp-size",
      mesh.stage_ranks(), per_node);
}

base::Result<Layout> BestOf(const SearchRequest& request, const spec::Mesh& mesh, int loops,
                            int64_t kv_bytes) {
  LONGSPAN_RETURN_IF_ERROR(request.ignore_blocks ? CheckShares(request, mesh)
                                                 : CheckServable(request, mesh));
  const plan::Deployment deployment = DeploymentOf(request, mesh, kv_bytes);
  const plan::HardwareCost cost(deployment);
  Layout layout{.mesh = mesh, .loops = loops, .kv_bytes = kv_bytes};
  const plan::PipelineShape shape = {mesh.pp, loops};
  // Beside the least workspace.
  const double memory = request.hardware.memory_bytes -
                        plan::MemoryOfRank(deployment, {}, kLeastChunk).workspace_bytes;
  LONGSPAN_ASSIGN_OR_RETURN(layout.stages,
                            SplitByTimeAndMemory(cost, shape,
                                                 {.prompt_tokens = request.prompt_tokens,
                                                  .memory_bytes = memory,
                                                  .memory_fraction = request.memory_fraction}));
  const plan::PipelineCost prior = plan::PriorCost(cost, shape, layout.stages);
  // A higher limit is never worse for the time: the highest one that leaves room for the prompt.
  int64_t most = kMostChunk;
  auto kv_tokens = KvTokens(request, FullestRank(deployment, layout, most));
  while (!kv_tokens.ok() && most > kLeastChunk) {
    most /= 2;
    kv_tokens = KvTokens(request, FullestRank(deployment, layout, most));
  }
  if (!kv_tokens.ok()) return kv_tokens.status();
  layout.chunk_ends = plan::PlanChunks(prior, {.begin = 0,
                                               .end = request.prompt_tokens,
                                               .page_size = request.page_size,
                                               .max_tokens = most})
                          .ends;
  std::vector<plan::RowRange> steps;
  int64_t longest = kLeastChunk;
  for (const int64_t end : layout.chunk_ends) {
    steps.push_back({steps.empty() ? 0 : steps.back().end, end});
    longest = std::max(longest, steps.back().end - steps.back().begin);
  }
  // No higher than this prompt needs: what is left is for the cache.
  layout.chunk_tokens = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(longest)));
  layout.memory = FullestRank(deployment, layout, layout.chunk_tokens);
  LONGSPAN_ASSIGN_OR_RETURN(layout.kv_tokens, KvTokens(request, layout.memory));
  Timeline(cost, layout).Fill(layout);
  layout.volume = VolumeOf(deployment, shape, steps);
  return layout;
}

base::Result<SearchResult> SearchLayouts(const SearchRequest& request) {
  SearchResult result;
  std::map<std::string, int> refused;
  for (const spec::Mesh& mesh : Meshes(request.gpus)) {
    std::optional<Layout> best;
    std::string why;
    for (const int64_t kv_bytes : request.kv_bytes) {
      for (int loops = 1; loops <= request.most_virtual_stages && (loops == 1 || mesh.pp > 1);
           loops *= 2) {
        auto layout = BestOf(request, mesh, loops, kv_bytes);
        if (!layout.ok()) {
          if (loops == 1) why = layout.status().message();
          break;
        }
        // A loop more is more messages: it has to pay.
        if (!best || layout->ttft_s < 0.995 * best->ttft_s) best = std::move(*layout);
      }
      if (best) break;
    }
    if (best)
      result.layouts.push_back(std::move(*best));
    else
      ++refused[why];
  }
  for (const auto& [why, count] : refused) result.refused.push_back({why, count});
  std::stable_sort(result.refused.begin(), result.refused.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  if (result.layouts.empty())
    return base::NotFound(
        "no layout of {} GPUs serves this model and prompt: {}", request.gpus,
        result.refused.empty() ? "none divides into nodes" : result.refused.front().why);
  std::stable_sort(result.layouts.begin(), result.layouts.end(),
                   [](const Layout& a, const Layout& b) { return a.ttft_s < b.ttft_s; });
  return result;
}

}  // namespace longspan::sim
