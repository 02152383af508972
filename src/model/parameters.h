// How many weights a model has.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace longspan::model {

// Elements of all matrices (norms and biases, a per mille of a model, are left out); a tied
// embedding counts twice, since the embedding and the head hold a copy each.
int64_t Parameters(const spec::ModelSpec& model);

}  // namespace longspan::model
