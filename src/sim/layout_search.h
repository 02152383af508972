// Which layout of a cluster serves a model best.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/hardware_cost.h"
#include "plan/memory_use.h"
#include "sim/comm_volume.h"

namespace longspan::sim {

struct SearchRequest {
  spec::ModelSpec model;
  spec::HardwareSpec hardware;
  int gpus = 8;
  int64_t prompt_tokens = 131072;
  bool fp8_weights = false;
  int64_t weight_block = 0;  // rows and columns with one scale; 0: weights are not in blocks
  plan::NodeLink node_link = plan::NodeLink::kInfiniband;
  plan::KvPlacement kv_placement = plan::KvPlacement::kReplicated;
  // Of an element of the cache, by preference: a mesh gets the first with which the prompt fits.
  std::vector<int64_t> kv_bytes = {2};
  int most_virtual_stages = 4;
  int page_size = 64;
  double memory_fraction = 0.8;
  // Counts also what no run can do: ranks that get parts of blocks of eight-bit weights, and stages
  // that reach over nodes.
  bool ignore_blocks = false;
};

// A way to divide the model, and what it promises.
struct Layout {
  spec::Mesh mesh;
  int loops = 1;
  int64_t kv_bytes = 2;
  int64_t chunk_tokens = 0;  // the most of a chunk
  std::vector<plan::LayerRange> stages;
  std::vector<int64_t> chunk_ends;

  double ttft_s = 0;           // of one prompt, by the recurrence
  double longest_chunk_s = 0;  // on the slowest rank
  double busy_share = 0;       // of the ranks' time in that
  double tokens_per_s = 0;     // of prompts that follow each other without a gap
  plan::MemoryUse memory;      // of the fullest rank
  int64_t kv_tokens = 0;       // that fit beside the weights
  CommVolume volume;
  plan::StepSeconds parts;  // of the slowest rank, all chunks
};

// Why some sizes are no layout, and how many they are.
struct RefusedLayouts {
  std::string why;
  int count = 0;
};

struct SearchResult {
  std::vector<Layout> layouts;  // by ttft_s, the best first; one for each mesh
  std::vector<RefusedLayouts> refused;
};

// Why no run could use this mesh, whatever ignore_blocks says: weights that its ranks cannot divide
// or whose blocks they would cut (the sentence names the weight), or stages wider than a node.
base::Status CheckServable(const SearchRequest& request, const spec::Mesh& mesh);

// Tries every mesh of exactly that many GPUs, with up to most_virtual_stages loops and chunks of
// 1,024 to 32,768 tokens at most. Meshes that are not servable are among the refused ones, unless
// ignore_blocks lets them pass. Layers are split by SplitByTimeAndMemory. NotFound, with the
// reasons, where no layout is left.
base::Result<SearchResult> SearchLayouts(const SearchRequest& request);

// The same for one mesh and number of loops. Errors are reasons against it.
base::Result<Layout> BestOf(const SearchRequest& request, const spec::Mesh& mesh, int loops,
                            int64_t kv_bytes);

}  // namespace longspan::sim
