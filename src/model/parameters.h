// How many weights a model has.
#pragma once

#include <cstdint>

#include "model/stage_model.h"
#include "spec/mesh.h"
#include "spec/model.h"

namespace longspan::model {

// Elements of all matrices (norms and biases, a per mille of a model, are left out); a tied
// embedding counts twice, since the embedding and the head may hold a copy each: where they share
// one (a rank that has both, on the host), this is an upper bound.
int64_t Parameters(const spec::ModelSpec& model);

// What all ranks of a mesh hold together: every context-parallel rank has all of its stage, but for
// experts that are divided further. (What tensor-parallel ranks all have, latents' projections and
// routers, counts once.)
int64_t ParametersOfRanks(const spec::ModelSpec& model, const spec::Mesh& mesh);

// Of a model's, the ones that a stage's part has.
int64_t Parameters(const spec::ModelSpec& model, const StagePart& part);

}  // namespace longspan::model
