// From flags to a node of several hosts.
#pragma once

#include "apps/engine_flags.h"
#include "apps/engine_setup.h"
#include "apps/nodes.h"
#include "base/result.h"

namespace longspan::apps {

// Tells models apart: a hash of the configuration and of the weight files' names, sizes and
// samples.
base::Result<std::string> ModelFingerprint(const EngineFlags& flags, const EngineSetup& setup);

// What all nodes must have in common is the program, the model (its configuration, and the names,
// the sizes and samples of its files) and every flag that a rank depends on.
base::Result<NodeOptions> NodeOptionsOf(const EngineFlags& flags, const EngineSetup& setup);

// The whole work of a node above 0.
base::Status RunNode(const EngineFlags& flags, const EngineSetup& setup);

}  // namespace longspan::apps
