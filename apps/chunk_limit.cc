#include "apps/chunk_limit.h"

#include <algorithm>
#include <bit>

#include "plan/memory_use.h"

namespace longspan::apps {
namespace {

struct Range {
  int64_t least = 0;
  int64_t most = 0;
  double workspace_bytes = 0;  // that a rank may take for the rows of its steps
};
constexpr Range kOnHost = {512, 4096, 256.0 * (1 << 20)};
constexpr Range kOnGpu = {8192, 16384, 4096.0 * (1 << 20)};

}  // namespace

int64_t DefaultChunkTokens(const EngineFlags& flags, const EngineSetup& setup) {
  const Range& range = setup.on_gpu ? kOnGpu : kOnHost;
  if (ChunkPolicyName(flags) != "planned" || setup.shape.ranks == 1) return range.least;
  const plan::Deployment deployment = {
      .model = setup.model,
      .mesh = flags.mesh,
      .hardware = {},
      .precision = {.compute_bytes = tensor::SizeOf(setup.compute)}};
  const double row_bytes = plan::MemoryOfRank(deployment, {}, 1).workspace_bytes;
  const auto rows = static_cast<uint64_t>(std::clamp(range.workspace_bytes / row_bytes,
                                                     static_cast<double>(range.least),
                                                     static_cast<double>(range.most)));
  return static_cast<int64_t>(std::bit_floor(rows));
}

}  // namespace longspan::apps
