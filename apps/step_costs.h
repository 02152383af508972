// What steps cost before any is measured.
#pragma once

#include "apps/cost_cache.h"
#include "apps/engine_setup.h"
#include "engine/chunk_policy.h"
#include "plan/chunk_cost.h"

namespace longspan::apps {

engine::ChunkPolicy ChunkPolicyOf(const EngineFlags& flags);

// The cache of what earlier runs have learnt about this model on this machine and layout.
CostCache CostCacheOf(const EngineFlags& flags, const EngineSetup& setup);

// By the model's figures and assumed rates of the machine.
plan::PipelineCost AssumedCost(const EngineFlags& flags, const EngineSetup& setup);

}  // namespace longspan::apps
