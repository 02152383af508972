// What steps cost before any is measured.
#pragma once

#include <optional>
#include <string>

#include "apps/cost_cache.h"
#include "apps/engine_setup.h"
#include "engine/chunk_policy.h"
#include "plan/chunk_cost.h"
#include "spec/hardware.h"

namespace longspan::apps {

engine::ChunkPolicy ChunkPolicyOf(const EngineFlags& flags);

// The cache of what earlier runs have learnt about this model on this machine and layout.
CostCache CostCacheOf(const EngineFlags& flags, const EngineSetup& setup);

// The profile in hardware/ that a GPU's name, such as "NVIDIA H200", has a word of.
std::optional<spec::HardwareSpec> ProfileOfGpu(const std::string& gpu);

// By the model's figures and the GPU's profile, or assumed rates of the machine.
plan::PipelineCost AssumedCost(const EngineFlags& flags, const EngineSetup& setup);

}  // namespace longspan::apps
