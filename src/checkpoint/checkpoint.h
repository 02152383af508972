// A model's weights, ready to be computed with.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "checkpoint/weight_source.h"

namespace longspan::checkpoint {

// The weights of a Hub folder (checkpoint/safetensors.h), FP8 blocks dequantised as its config.json
// says. Hands out BF16, F16 and F32 only.
base::Result<std::unique_ptr<WeightSource>> OpenCheckpoint(const std::filesystem::path& model_dir);

}  // namespace longspan::checkpoint
