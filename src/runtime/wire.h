// The binary forms of what ranks and the leader tell each other.
//
// A frame is a header (magic, version, kind) and a body of little-endian values (base/bytes.h). A
// frame of another version or kind, one that ends early or has bytes left over, is DataLoss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/step_plan.h"
#include "plan/step_result.h"
#include "runtime/rank_config.h"

namespace longspan::runtime {

using Frame = std::vector<std::byte>;

enum class FrameKind : uint8_t {
  kConfigure = 1,  // leader -> rank: RankConfig
  kLoading = 2,    // rank -> leader: share of the weights loaded, f64
  kReady = 3,      // rank -> leader: RankReady
  kAllocate = 4,   // leader -> rank: pages of KV, i64
  kAllocated = 5,  // rank -> leader
  kPlan = 6,       // leader -> rank: StepPlan
  kResult = 7,     // rank -> leader: StepResult
  kTokens = 8,     // last stage -> first stage: SampledTokens
  kFailure = 9,    // rank -> leader: Status; the rank ends
  kBeat = 10,      // both ways: Beat (runtime/beat.h)
  kLaunch = 11,    // node 0 -> node: NodeLaunch (runtime/node_wire.h)
  kRunOver = 12,   // node 0 -> node
};

// Tokens that a plan has sampled, by slot (-1 where a row was not sampled).
struct SampledTokens {
  plan::PlanNumber plan;
  std::vector<int32_t> tokens;
};

Frame EncodeConfigure(const RankConfig& config);
Frame EncodeLoading(double share);
Frame EncodeReady(const RankReady& ready);
Frame EncodeAllocate(int64_t pages);
Frame EncodeAllocated();
Frame EncodePlan(const plan::StepPlan& plan);
Frame EncodeResult(const plan::StepResult& result);
Frame EncodeTokens(const SampledTokens& tokens);
Frame EncodeFailure(const base::Status& status);

// The kind of a frame whose header is right.
base::Result<FrameKind> KindOf(std::span<const std::byte> frame);

// Each expects its own kind.
base::Result<RankConfig> DecodeConfigure(std::span<const std::byte> frame);
base::Result<double> DecodeLoading(std::span<const std::byte> frame);
base::Result<RankReady> DecodeReady(std::span<const std::byte> frame);
base::Result<int64_t> DecodeAllocate(std::span<const std::byte> frame);
base::Result<plan::StepPlan> DecodePlan(std::span<const std::byte> frame);
base::Result<plan::StepResult> DecodeResult(std::span<const std::byte> frame);
base::Result<SampledTokens> DecodeTokens(std::span<const std::byte> frame);
// The rank's failure itself, or DataLoss.
base::Status DecodeFailure(std::span<const std::byte> frame);

}  // namespace longspan::runtime
