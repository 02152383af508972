// The ranks that a node starts on its host. For apps/node_leader.cc and apps/node_follower.cc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/nodes.h"
#include "base/result.h"
#include "comm/file_descriptor.h"
#include "comm/socket/tcp.h"
#include "runtime/node_wire.h"

namespace longspan::apps {

// Connections with other nodes, by what they are for.
using NodeLines = std::map<runtime::NodeLine, comm::FileDescriptor>;

// Starts the stages of `share` as processes. Takes from `lines` what leads to other nodes: the
// residual streams into and out of the share, and the tokens. A stage whose control line is among
// them is talked to by node 0 over that; the others' channels are in their handles. `arguments` are
// more flags for each, or nothing.
base::Result<std::vector<std::unique_ptr<runtime::RankHandle>>> StartShare(
    const runtime::StageShare& share, const runtime::NodeLaunch& launch, NodeLines lines,
    const std::vector<std::vector<std::string>>& arguments);

// How this node introduces itself when it connects.
std::string JoinText(int node, const comm::TcpAddress& listens);
// The node and its address; DataLoss for other text.
struct JoiningNode {
  int node = 0;
  std::string address;
};
base::Result<JoiningNode> ParseJoinText(const std::string& text);

comm::Greeting GreetingOf(const NodeOptions& options, std::string identity);

}  // namespace longspan::apps
