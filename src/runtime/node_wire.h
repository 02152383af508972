// What node 0 tells the programs on other hosts. A node is one program; it starts the ranks of its
// host. Frames as in runtime/wire.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "runtime/wire.h"

namespace longspan::runtime {

// Consecutive stages [first, end) of one node.
struct StageShare {
  int32_t first = 0;
  int32_t end = 0;

  int count() const { return end - first; }
  bool Has(int stage) const { return stage >= first && stage < end; }
  friend bool operator==(const StageShare&, const StageShare&) = default;
};

// The stages in order over the nodes in order; where they cannot be spread evenly, the first nodes
// get one more. Every node needs a stage.
std::vector<StageShare> SpreadStages(int stages, int nodes);

// An order to start ranks anew. Connections that are made for it carry its number, so that those of
// an earlier one are told apart.
struct NodeLaunch {
  uint64_t number = 0;
  int32_t stages = 0;
  int32_t lanes = 1;                   // ranks of every stage
  bool ring = false;                   // the last stage passes residual streams to the first
  std::vector<std::string> addresses;  // by node: where it listens

  friend bool operator==(const NodeLaunch&, const NodeLaunch&) = default;
};

Frame EncodeLaunch(const NodeLaunch& launch);
base::Result<NodeLaunch> DecodeLaunch(std::span<const std::byte> frame);

// The run is over: the node's program ends in order.
Frame EncodeRunOver();

// What a connection between nodes is for, as it introduces itself. `stage` and `lane` are those of
// the rank whose control channel it is, or that the residual stream or the tokens go to.
struct NodeLine {
  enum class Kind : uint8_t { kControl, kResidual, kTokens };
  uint64_t launch = 0;
  Kind kind = Kind::kControl;
  int32_t stage = 0;
  int32_t lane = 0;

  std::string ToString() const;
  // DataLoss for text that ToString does not make.
  static base::Result<NodeLine> Parse(const std::string& text);
  friend bool operator==(const NodeLine&, const NodeLine&) = default;
  friend bool operator<(const NodeLine& a, const NodeLine& b) {
    return std::tie(a.launch, a.kind, a.stage, a.lane) <
           std::tie(b.launch, b.kind, b.stage, b.lane);
  }
};

}  // namespace longspan::runtime
