#include "apps/node_setup.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "apps/input_files.h"
#include "base/mix_bits.h"

namespace longspan::apps {
namespace {

namespace fs = std::filesystem;

uint64_t Mix(uint64_t state, std::string_view text) {
  for (const char c : text) state = base::MixBits(state ^ static_cast<unsigned char>(c));
  return base::MixBits(state + text.size());
}

// Bytes from places spread over a file, the first among them.
base::Result<std::string> SampleFile(const fs::path& path, uint64_t size) {
  constexpr uint64_t kSamples = 64;
  const uint64_t sample_bytes = std::min<uint64_t>(64, size);
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::string sample(sample_bytes, '\0');
  for (uint64_t i = 0; i < kSamples && file; ++i) {
    file.seekg(static_cast<std::streamoff>((size - sample_bytes) / kSamples * i));
    file.read(sample.data(), static_cast<std::streamsize>(sample_bytes));
    bytes += sample;
  }
  if (!file) return base::InvalidArgument("'{}' cannot be read", path.string());
  return bytes;
}

std::string StagesText(const EngineSetup& setup) {
  std::string text;
  for (const plan::LayerRange& range : setup.stages)
    text += fmt::format("{}{}", text.empty() ? "" : ",", range.end - range.begin);
  return text;
}

}  // namespace

// Not all bytes of the weights, which would take as long as loading them: samples, which differ
// between models that were trained differently.
base::Result<std::string> ModelFingerprint(const EngineFlags& flags, const EngineSetup& setup) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto config, ReadInputFile(setup.model_dir / "config.json"));
  uint64_t hash = Mix(1, config);
  std::vector<std::string> files;
  std::error_code error;
  if (flags.load_format != "dummy") {
    for (const auto& entry : fs::directory_iterator(setup.model_dir, error))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  if (error)
    return base::InvalidArgument("'{}' cannot be read: {}", setup.model_dir.string(),
                                 error.message());
  std::sort(files.begin(), files.end());
  for (const std::string& name : files) {
    const fs::path file(name);
    const uint64_t size = fs::file_size(file, error);
    LONGSPAN_ASSIGN_OR_RETURN(const std::string sample, SampleFile(file, size));
    hash = Mix(hash, fmt::format("{} {} ", file.filename().string(), size) + sample);
  }
  return fmt::format("{} {:016x}", setup.model.architecture, hash);
}

base::Result<NodeOptions> NodeOptionsOf(const EngineFlags& flags, const EngineSetup& setup) {
  NodeOptions options;
  options.leader = flags.dist_init_address;
  LONGSPAN_ASSIGN_OR_RETURN(const std::string model, ModelFingerprint(flags, setup));
  options.node = flags.node_rank;
  options.nodes = flags.nodes;
  options.shape = setup.shape;
  options.lanes = flags.mesh.stage_ranks();
  options.peer_timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * flags.peer_timeout));
  options.model_dir = fs::absolute(setup.model_dir).string();
  options.threads = setup.threads;
  options.version = LONGSPAN_VERSION;
  options.agreement = {
      {"the model", model},
      {"--load-format", flags.load_format},
      {"--dummy-seed", std::to_string(flags.dummy_seed)},
      {"--backend", setup.backend},
      {"--dtype", std::string(tensor::DTypeName(setup.compute))},
      {"--kv-cache-dtype", std::string(tensor::DTypeName(setup.kv_cache))},
      {"--nnodes", std::to_string(flags.nodes)},
      {"--pp-size", std::to_string(flags.mesh.pp)},
      {"--cp-size", std::to_string(flags.mesh.cp)},
      {"--tp-size", std::to_string(flags.mesh.tp)},
      {"--ep-size", std::to_string(flags.mesh.ep)},
      {"--cp-strategy", flags.cp_strategy},
      {"--kv-placement", flags.kv_placement},
      {"--pp-layer-partition", StagesText(setup)},
      {"--virtual-stages", std::to_string(flags.virtual_stages)},
      {"--chunked-prefill-size", std::to_string(setup.chunk_tokens)},
      {"--page-size", std::to_string(flags.page_size)},
      {"--context-length", std::to_string(setup.context_length)},
      {"--max-running-requests", std::to_string(flags.max_running_requests)},
      {"--deterministic", flags.deterministic ? "on" : "off"},
  };
  return options;
}

base::Status RunNode(const EngineFlags& flags, const EngineSetup& setup) {
  LONGSPAN_ASSIGN_OR_RETURN(const NodeOptions options, NodeOptionsOf(flags, setup));
  return FollowLeader(options);
}

}  // namespace longspan::apps
