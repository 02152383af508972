// The life of a rank, from its first frame to its last.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "runtime/rank_config.h"
#include "runtime/rank_links.h"

namespace longspan::runtime {

// Finds a backend by name, or says which there are.
using BackendFinder = std::function<base::Result<const ops::Backend*>(std::string_view name)>;

// Makes those of the links that the configuration says into links between GPUs. Called before the
// first transfer.
using PeerConnector = std::function<base::Status(const RankConfig& config, RankLinks& links)>;

// What a rank on another host than the leader's knows better than the leader.
struct RankHost {
  std::string model_dir;       // empty: the leader's
  int32_t threads = 0;         // 0: as the leader says, with its cores
  std::vector<int32_t> cores;  // to pin the threads to; empty: not pinned
};

// Takes its configuration from the leader, loads, allocates, then applies plans until the leader
// closes the channel (ok) or something fails (the error, which the leader has been told). Closes
// the links before it returns. The calling thread is the rank's first compute thread.
base::Status RunRank(RankLinks& links, const BackendFinder& find_backend, const RankHost& host = {},
                     const PeerConnector& connect_peers = {});

}  // namespace longspan::runtime
