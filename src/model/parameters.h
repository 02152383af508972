// How many weights a model has.
#pragma once

#include <cstdint>

#include "model/stage_model.h"
#include "spec/model.h"

namespace longspan::model {

// Elements of all matrices (norms and biases, a per mille of a model, are left out); a tied
// embedding counts twice, since the embedding and the head hold a copy each.
int64_t Parameters(const spec::ModelSpec& model);

// Of these, the ones that a stage's part has.
int64_t Parameters(const spec::ModelSpec& model, const StagePart& part);

}  // namespace longspan::model
