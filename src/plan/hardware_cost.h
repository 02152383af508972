// How long a stage takes for a step, from what the hardware can do and what the model computes:
// before anything has been measured, and for machines that are not there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/attention_cost.h"
#include "plan/chunk_cost.h"
#include "plan/layer_split.h"
#include "plan/page_share.h"
#include "spec/hardware.h"
#include "spec/mesh.h"
#include "spec/model.h"

namespace longspan::plan {

// In which types a model is kept and computed.
struct Precision {
  bool fp8_weights = false;   // stored in eight bits, and multiplied at the FP8 rate
  int64_t kv_bytes = 2;       // of an element of the cache
  int64_t compute_bytes = 2;  // of activations

  double weight_bytes() const { return fp8_weights ? 1 : 2; }
};

// What lies between GPUs of different nodes.
enum class NodeLink : uint8_t { kInfiniband, kEthernet };

// A model on a cluster. Ranks are numbered as in the mesh and fill one node after the other.
struct Deployment {
  spec::ModelSpec model;
  spec::Mesh mesh;
  spec::HardwareSpec hardware;
  Precision precision;
  // Of context-parallel ranks, in any form; without them it is whole.
  KvPlacement kv_placement = KvPlacement::kReplicated;
  NodeLink node_link = NodeLink::kInfiniband;

  bool divides_cache() const { return mesh.cp > 1 && kv_placement == KvPlacement::kSharded; }
};

// One step's rows of one rank's layers. Parts that do not overlap; they sum to what Seconds says.
struct StepSeconds {
  double products = 0;     // with weights, experts included
  double attention = 0;    // and the indexer
  double memory = 0;       // element by element: norms, sums, quantisation, order of experts
  double collectives = 0;  // between the ranks of the stage, by axis:
  double tensor = 0;
  double context = 0;
  double expert = 0;
  double launches = 0;
  double head = 0;

  double total() const { return products + attention + memory + collectives + launches + head; }
};

// Seconds by counting: operations at a share of the peak that the number of rows bounds, or bytes
// at a share of the memory's rate where that is longer; collective operations by their volumes
// (plan/exchange_volume.h, plan/context_volume.h) over the slowest link between their ranks, not
// overlapped with anything. docs/planner.md has the formulas and what they leave out.
//
// A plain value with derived ones: the same arguments give the same seconds.
class HardwareCost {
 public:
  explicit HardwareCost(const Deployment& deployment);

  // A step of these slices in layers [begin, end), with the head for `listed` rows.
  StepSeconds Step(LayerRange layers, std::span<const RowRange> slices, int64_t listed) const;
  double Seconds(LayerRange layers, std::span<const RowRange> slices, int64_t listed) const {
    return Step(layers, slices, listed).total();
  }

  // The same as a ChunkCost for chunks of some thousand rows: what the planner begins with.
  ChunkCost Chunk(LayerRange layers) const;

  // From the last byte's departure at a rank of `stage` to its arrival at the next stage's.
  double BoundaryLatency(int stage) const;
  // How long the residual stream of so many rows keeps the link busy.
  double BoundarySeconds(int stage, int64_t rows) const;

  const Deployment& deployment() const { return deployment_; }

 private:
  const spec::LinkSpec& LinkBetween(int rank, int other) const;
  // Of `bytes` that each of `ranks` consecutive lanes receives, in so many messages one after the
  // other.
  double GroupSeconds(double bytes, int ranks, double messages) const;
  double ProductSeconds(double rows, double inner, double columns) const;
  double AttentionProducts(double rows) const;
  double FeedForward(spec::FeedForwardKind kind, double rows) const;
  double Experts(double rows) const;
  double ElementwiseSeconds(spec::FeedForwardKind kind, double rows) const;
  double ContextSeconds(int64_t rows, int64_t longest) const;
  // `longest`: positions of the longest sequence behind the step.
  void AddCollectives(spec::FeedForwardKind kind, int64_t rows, int64_t longest,
                      StepSeconds& step) const;
  StepSeconds Layer(spec::FeedForwardKind kind, int64_t rows, int64_t longest) const;

  Deployment deployment_;
  spec::ModelSpec share_;  // of one tensor-parallel rank
  AttentionCost attention_;
  double byte_seconds_;     // of memory
  double product_seconds_;  // of a multiply-add
};

// Seconds of one layer of each kind, and of the ends, as SplitLayers takes them: for a chunk of
// `rows` behind `depth` positions.
std::vector<double> LayerSeconds(const HardwareCost& cost, int64_t depth, int64_t rows);

// What each rank computes in each loop.
PipelineCost PriorCost(const HardwareCost& cost, const PipelineShape& shape,
                       std::span<const LayerRange> stages);

}  // namespace longspan::plan
