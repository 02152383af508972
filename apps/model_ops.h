// Which ops a model's steps consist of, and how fast each is.
#pragma once

#include <functional>
#include <vector>

#include "apps/op_bench.h"
#include "apps/op_probes.h"
#include "spec/model.h"

namespace longspan::apps {

using OpProbe = std::function<base::Result<OpFigure>(OpBench&)>;

// Probes of every op that the model needs on any layout, in the order of a step: with the rows of
// `prefill`, which end a prompt of its keys, then those that a decoding row of a sequence as long
// spends its time in, and the ops on logits. Ops are run whole, not a rank's share of them.
std::vector<OpProbe> ModelOps(const spec::ModelSpec& model, const SliceShape& prefill);

// The products and attention of Qwen3-30B-A3B's shape, which keep a GPU busy. `scale`: of rows and
// contexts.
std::vector<OpProbe> LargeOps(double scale);

}  // namespace longspan::apps
