// Several hosts: the same command on each. Node 0 leads and has the engine; every other node starts
// the ranks of its host when node 0 says so, until node 0 ends the run.
//
// Nodes above 0 hold a connection to node 0, over which orders come. A connection of a rank with
// the leader or with a rank of another node is made by the nodes (the higher one connects to where
// the lower one listens) and inherited by the rank, like the ones within a host. All of them begin
// with a greeting that refuses another version, model or flag.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/layer_split.h"
#include "runtime/rank_handle.h"

namespace longspan::apps {

struct NodeOptions {
  std::string leader;  // HOST:PORT where node 0 listens
  int node = 0;        // this one
  int nodes = 2;
  plan::PipelineShape shape;  // at least one stage for every node
  int lanes = 1;              // ranks of a stage, all on one node
  // What must be equal everywhere: the program's version, and values by name.
  std::string version;
  std::vector<std::pair<std::string, std::string>> agreement;
  std::chrono::milliseconds peer_timeout{5000};
  // Of a node above 0: its own folder of the model, and what each of its ranks computes with.
  std::string model_dir;
  int threads = 1;
};

// Refuses what is not HOST:PORT with a port above 0.
base::Status CheckNodeAddress(const std::string& address);

// Node 0. One thread calls it, the one that outlives the ranks (runtime/rank_process.h).
class NodeLeader {
 public:
  // Begins to listen.
  static base::Result<std::unique_ptr<NodeLeader>> Listen(NodeOptions options);
  virtual ~NodeLeader() = default;  // tells the nodes that the run is over

  // Waits until all nodes are there, as long as it takes, and starts the ranks of all stages, in
  // order. Called again it starts new ones: nodes that are gone are waited for.
  virtual base::Result<std::vector<std::unique_ptr<runtime::RankHandle>>> StartRanks() = 0;
};

// A node above 0: ok when node 0 has ended the run. InvalidArgument when node 0 refuses it, with
// the difference; Unavailable when node 0 is gone.
base::Status FollowLeader(const NodeOptions& options);

}  // namespace longspan::apps
