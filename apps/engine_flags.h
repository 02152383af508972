// The flags that every command which computes understands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "spec/mesh.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}  // namespace CLI

namespace longspan::apps {

// As given; defaults that depend on the model or the machine are filled in later (engine_setup.h).
struct EngineFlags {
  std::string model_path;
  std::string load_format = "auto";
  uint64_t dummy_seed = 0;
  std::string backend = "auto";
  std::string hardware;  // of emulated and simulated ranks
  std::string node_link = "infiniband";
  double time_scale = 1;
  int threads = 0;  // 0: all cores / ranks
  int base_gpu_id = 0;
  int gpu_id_step = 1;
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  spec::Mesh mesh;
  std::string cp_strategy = "interleave";
  std::string kv_placement = "replicated";
  std::string layer_partition;
  int virtual_stages = 1;
  int64_t chunked_prefill_size = 0;  // 0: that of chunk_limit.h
  std::string chunk_policy;          // empty: see ChunkPolicyName
  bool dynamic_chunking = false;
  std::optional<double> smooth_factor;
  std::string cost_cache = "auto";  // or "off", or a folder
  int page_size = 64;
  std::optional<int64_t> max_total_tokens;
  double memory_fraction = 0.8;
  bool disable_radix_cache = false;
  int64_t context_length = 0;  // 0: the model's
  int64_t max_running_requests = 64;
  int64_t max_queued_requests = 1024;
  std::optional<int64_t> max_decode_stall_ms;
  double watchdog_timeout = 60;
  double peer_timeout = 5;
  bool no_replay = false;
  int nodes = 1;
  int node_rank = 0;
  std::string dist_init_address;
  bool deterministic = false;
  std::string trace_out;
  std::string log_level = "info";
};

// Those that say which cluster is simulated or emulated.
void AddHardwareFlags(CLI::App& command, std::string& hardware, std::string& node_link);

// Adds the flags, in groups, with units and defaults; LONGSPAN_* variables mirror them.
void AddEngineFlags(CLI::App& command, EngineFlags& flags);

// The chunk policy that the flags and their alias name.
std::string ChunkPolicyName(const EngineFlags& flags);

// What was given and changes nothing beside the other flags of a run, a sentence for each.
std::vector<std::string> FlagsWithoutEffect(const EngineFlags& flags);

// Refuses nonsense, and flags whose part is not built yet, with a sentence. Sets the log level, and
// warns of flags without effect.
base::Status CheckEngineFlags(const EngineFlags& flags);
// The same for `longspan simulate`, which has no ranks: refuses what it would not count.
base::Status CheckSimulatedFlags(const EngineFlags& flags);

}  // namespace longspan::apps
