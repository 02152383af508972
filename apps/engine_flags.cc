#include "apps/engine_flags.h"

#include <cmath>

#include <CLI/CLI.hpp>

#include "apps/nodes.h"
#include "base/log.h"

namespace longspan::apps {
namespace {

void AddModelFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--model-path,--model", flags.model_path,
                  "Hugging Face folder: config.json, *.safetensors, tokenizer.json "
                  "[the embedded model]")
      ->type_name("DIR")
      ->envname("LONGSPAN_MODEL_PATH")
      ->group("Model");
  command
      .add_option("--load-format", flags.load_format,
                  "auto, or dummy: random weights from config.json alone")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str()
      ->group("Model");
  command.add_option("--dummy-seed", flags.dummy_seed, "of dummy weights")
      ->capture_default_str()
      ->group("Model");
  command.add_option("--dtype", flags.dtype, "compute type [auto: bf16, f32 on reference]")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->envname("LONGSPAN_DTYPE")
      ->group("Model");
  command
      .add_option("--context-length", flags.context_length,
                  "most tokens of prompt and output together [the model's]")
      ->type_name("TOKENS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->envname("LONGSPAN_CONTEXT_LENGTH")
      ->group("Model");
}

void AddComputeFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--backend", flags.backend,
                  "where to compute [auto: cuda where a GPU is, else cpu]")
      ->check(CLI::IsMember({"auto", "cpu", "reference", "cuda", "emulated"}))
      ->envname("LONGSPAN_BACKEND")
      ->group("Compute");
  command
      .add_option("--threads", flags.threads, "compute threads of each rank [all cores / ranks]")
      ->check(CLI::Range(1, 4096))
      ->envname("LONGSPAN_THREADS")
      ->group("Compute");
  command.add_option("--base-gpu-id", flags.base_gpu_id, "the GPU of a host's first rank")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str()
      ->group("Compute");
  command
      .add_option("--gpu-id-step", flags.gpu_id_step,
                  "from one rank's GPU to the next one's; 0: all ranks share one")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str()
      ->group("Compute");
  command
      .add_flag("--deterministic", flags.deterministic,
                "the same bits for any chunking and any number of stages")
      ->group("Compute");
}

void AddClusterFlags(CLI::App& command, EngineFlags& flags) {
  AddHardwareFlags(command, flags.hardware, flags.node_link);
  command
      .add_option("--time-scale", flags.time_scale,
                  "emulated ranks take so many times the modelled time")
      ->check(CLI::Range(1e-4, 1e4))
      ->capture_default_str()
      ->group("Cluster");
}

void AddParallelFlags(CLI::App& command, EngineFlags& flags) {
  const auto size = [&](const char* names, int& value, const char* about, const char* variable) {
    command.add_option(names, value, about)
        ->check(CLI::Range(1, 65536))
        ->capture_default_str()
        ->envname(variable)
        ->group("Parallelism");
  };
  size("--pp-size,--pipeline-parallel-size", flags.mesh.pp, "pipeline stages", "LONGSPAN_PP_SIZE");
  size("--tp-size,--tp,--tensor-parallel-size", flags.mesh.tp,
       "ranks of a stage that divide heads, columns and vocabulary", "LONGSPAN_TP_SIZE");
  size("--cp-size,--context-parallel-size", flags.mesh.cp,
       "ranks of a stage that divide the tokens of every chunk", "LONGSPAN_CP_SIZE");
  size("--ep-size,--expert-parallel-size", flags.mesh.ep,
       "ranks of a stage that experts are divided over", "LONGSPAN_EP_SIZE");
  size("--virtual-stages", flags.virtual_stages, "looped stages per rank",
       "LONGSPAN_VIRTUAL_STAGES");
  size("--nnodes", flags.nodes, "hosts", "LONGSPAN_NNODES");
  command.add_option("--node-rank", flags.node_rank, "this host's number")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str()
      ->group("Parallelism");
  command.add_option("--dist-init-addr", flags.dist_init_address, "where host 0 listens")
      ->type_name("HOST:PORT")
      ->group("Parallelism");
  command
      .add_option(
          "--cp-strategy", flags.cp_strategy,
          "how context-parallel ranks divide a chunk: token by token, or in blocks from both "
          "ends")
      ->check(CLI::IsMember({"zigzag", "interleave"}))
      ->capture_default_str()
      ->group("Parallelism");
  command
      .add_option("--kv-placement", flags.kv_placement,
                  "the cache of context-parallel ranks: whole at each, or divided over them")
      ->check(CLI::IsMember({"replicated", "sharded"}))
      ->capture_default_str()
      ->group("Parallelism");
  command
      .add_option(
          "--pp-layer-partition", flags.layer_partition,
          "layers of each stage, for example 15,15,15,16; with --virtual-stages of each one in "
          "every loop, in pipeline order [by cost]")
      ->type_name("N,N,...")
      ->envname("SGLANG_PP_LAYER_PARTITION")
      ->group("Parallelism");
}

void AddSchedulingFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--chunked-prefill-size", flags.chunked_prefill_size,
                  "prefill chunk: the largest one (planned), each one (fixed) or the first one "
                  "(quadratic); -1: the default [512, on GPUs 8192; plans of several stages up to "
                  "4096, on GPUs 16384]")
      ->type_name("TOKENS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20) | CLI::Range(-1, -1))
      ->envname("LONGSPAN_CHUNKED_PREFILL_SIZE")
      ->group("Scheduling");
  command
      .add_option("--chunk-policy", flags.chunk_policy,
                  "how chunk lengths are chosen: by a plan for the measured machine, all alike, or "
                  "by the published quadratic fit [planned]")
      ->check(CLI::IsMember({"fixed", "quadratic", "planned"}))
      ->envname("LONGSPAN_CHUNK_POLICY")
      ->group("Scheduling");
  command
      .add_flag("--enable-dynamic-chunking", flags.dynamic_chunking,
                "the same as --chunk-policy quadratic, whatever that says")
      ->group("Scheduling");
  command
      .add_option("--dynamic-chunking-smooth-factor", flags.smooth_factor,
                  "of the quadratic policy, without effect on others [0.75]")
      ->type_name("SHARE")
      ->check(CLI::Range(0.0, 1.0))
      ->envname("SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR")
      ->group("Scheduling");
  command
      .add_option("--cost-cache", flags.cost_cache,
                  "where chunk times are kept from run to run; auto: in the user's cache folder")
      ->type_name("FOLDER|auto|off")
      ->capture_default_str()
      ->envname("LONGSPAN_COST_CACHE")
      ->group("Scheduling");
  command
      .add_option("--max-running-requests", flags.max_running_requests,
                  "sequences computed together")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str()
      ->envname("LONGSPAN_MAX_RUNNING_REQUESTS")
      ->group("Scheduling");
  command.add_option("--max-queued-requests", flags.max_queued_requests, "requests that may wait")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str()
      ->group("Scheduling");
  command
      .add_option("--max-decode-stall-ms", flags.max_decode_stall_ms,
                  "bound on a chunk's time while others decode [off]")
      ->type_name("MS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->group("Scheduling");
}

void AddCacheFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--kv-cache-dtype", flags.kv_cache_dtype,
                  "KV cache type [auto: the compute type]")
      ->check(CLI::IsMember({"auto", "bf16", "f32", "fp8"}))
      ->envname("LONGSPAN_KV_CACHE_DTYPE")
      ->group("KV cache");
  command.add_option("--page-size", flags.page_size, "tokens of a KV page")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->envname("LONGSPAN_PAGE_SIZE")
      ->group("KV cache");
  command.add_option("--max-total-tokens", flags.max_total_tokens, "KV capacity [by memory]")
      ->type_name("TOKENS")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->envname("LONGSPAN_MAX_TOTAL_TOKENS")
      ->group("KV cache");
  command
      .add_option("--mem-fraction-static", flags.memory_fraction,
                  "share of the free memory that the KV cache may take")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str()
      ->envname("LONGSPAN_MEM_FRACTION_STATIC")
      ->group("KV cache");
  command
      .add_flag("--disable-radix-cache", flags.disable_radix_cache,
                "compute every prompt as a whole, also where an earlier one began alike")
      ->group("KV cache");
}

void AddOperationFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--watchdog-timeout", flags.watchdog_timeout,
                  "a stage that computes one plan for longer is lost")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str()
      ->group("Operation");
  command.add_option("--peer-timeout", flags.peer_timeout, "a stage silent for longer is lost")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str()
      ->group("Operation");
  command
      .add_flag("--no-replay", flags.no_replay,
                "end when a stage is lost, instead of starting the stages again and computing what "
                "was running once more")
      ->group("Operation");
  command
      .add_option("--trace-out", flags.trace_out,
                  "timeline of every rank in Chrome trace form, for Perfetto and longspan trace")
      ->type_name("FILE")
      ->group("Operation");
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str()
      ->envname("LONGSPAN_LOG_LEVEL")
      ->group("Operation");
}

base::Status CheckValues(const EngineFlags& flags) {
  LONGSPAN_RETURN_IF_ERROR(base::SetLogLevel(flags.log_level));
  if (std::isnan(flags.memory_fraction))
    return base::InvalidArgument("--mem-fraction-static must be a number between 0 and 1");
  if (std::isnan(flags.watchdog_timeout) || std::isnan(flags.peer_timeout))
    return base::InvalidArgument("--watchdog-timeout and --peer-timeout must be numbers");
  return base::OkStatus();
}

base::Status CheckNodes(const EngineFlags& flags) {
  if (flags.node_rank >= flags.nodes)
    return base::InvalidArgument("--node-rank {} is not below --nnodes {}", flags.node_rank,
                                 flags.nodes);
  if (flags.nodes == 1) return base::OkStatus();
  if (flags.dist_init_address.empty())
    return base::InvalidArgument("--nnodes {} needs --dist-init-addr HOST:PORT of node 0",
                                 flags.nodes);
  LONGSPAN_RETURN_IF_ERROR(CheckNodeAddress(flags.dist_init_address));
  if (flags.mesh.pp < flags.nodes)
    return base::InvalidArgument(
        "--nnodes {} needs a stage for every host: give --pp-size {} or more", flags.nodes,
        flags.nodes);
  return base::OkStatus();
}

// The flags of interfaces that come with later parts.
base::Status CheckBuilt(const EngineFlags& flags) {
  if (flags.backend == "emulated" && flags.hardware.empty())
    return base::InvalidArgument("--backend emulated needs --hardware: what the ranks emulate");
  if (flags.backend == "emulated" && flags.nodes > 1)
    return base::Unimplemented("--backend emulated runs all ranks on one host: leave --nnodes out");
  if (flags.backend == "emulated" && flags.dtype == "f32")
    return base::Unimplemented(
        "--backend emulated takes the times of bf16 activations: leave --dtype f32 out");
  if (flags.backend == "emulated" && flags.kv_placement == "sharded" && flags.mesh.cp > 1)
    return base::Unimplemented(
        "--backend emulated takes the times of a cache that is whole at each rank: leave "
        "--kv-placement sharded out");
  if (flags.kv_cache_dtype == "fp8" && flags.backend != "emulated")
    return base::Unimplemented("--kv-cache-dtype fp8 is not built yet: use bf16 or f32");
  return spec::CheckMesh(flags.mesh);
}

}  // namespace

std::string ChunkPolicyName(const EngineFlags& flags) {
  if (flags.dynamic_chunking) return "quadratic";
  return flags.chunk_policy.empty() ? "planned" : flags.chunk_policy;
}

void AddHardwareFlags(CLI::App& command, std::string& hardware, std::string& node_link) {
  command
      .add_option(
          "--hardware", hardware,
          "the profile of a cluster that need not be there: h20, h100, h200, b200, or a file "
          "in their form")
      ->type_name("NAME|FILE")
      ->group("Cluster");
  command.add_option("--node-link", node_link, "what connects its hosts")
      ->check(CLI::IsMember({"infiniband", "ethernet"}))
      ->capture_default_str()
      ->group("Cluster");
}

void AddEngineFlags(CLI::App& command, EngineFlags& flags) {
  AddModelFlags(command, flags);
  AddComputeFlags(command, flags);
  AddClusterFlags(command, flags);
  AddParallelFlags(command, flags);
  AddSchedulingFlags(command, flags);
  AddCacheFlags(command, flags);
  AddOperationFlags(command, flags);
}

std::vector<std::string> FlagsWithoutEffect(const EngineFlags& flags) {
  std::vector<std::string> sentences;
  const bool emulated = flags.backend == "emulated";
  if (!emulated && !flags.hardware.empty())
    sentences.emplace_back("--hardware changes nothing without --backend emulated");
  if (!emulated && flags.node_link != EngineFlags().node_link)
    sentences.emplace_back("--node-link changes nothing without --backend emulated");
  if (!emulated && flags.time_scale != EngineFlags().time_scale)
    sentences.emplace_back("--time-scale changes nothing without --backend emulated");
  if (flags.kv_placement == "sharded" && flags.mesh.cp == 1)
    sentences.emplace_back(
        "--kv-placement sharded changes nothing without --cp-size: one rank has the whole cache");
  return sentences;
}

base::Status CheckEngineFlags(const EngineFlags& flags) {
  LONGSPAN_RETURN_IF_ERROR(CheckValues(flags));
  LONGSPAN_RETURN_IF_ERROR(CheckNodes(flags));
  for (const std::string& sentence : FlagsWithoutEffect(flags)) base::Log("engine").warn(sentence);
  return CheckBuilt(flags);
}

base::Status CheckSimulatedFlags(const EngineFlags& flags) {
  LONGSPAN_RETURN_IF_ERROR(CheckValues(flags));
  if (!flags.trace_out.empty())
    return base::InvalidArgument(
        "--trace-out is for real ranks: simulate draws its timeline with --svg");
  if (flags.dtype == "f32")
    return base::Unimplemented("simulate counts bf16 activations: leave --dtype f32 out");
  if (flags.time_scale != EngineFlags().time_scale)
    base::Log("sim").warn("--time-scale changes nothing here: the clock is a virtual one");
  EngineFlags shared = flags;
  shared.hardware.clear();
  shared.node_link = EngineFlags().node_link;
  shared.time_scale = EngineFlags().time_scale;
  for (const std::string& sentence : FlagsWithoutEffect(shared)) base::Log("sim").warn(sentence);
  return base::OkStatus();
}

}  // namespace longspan::apps
