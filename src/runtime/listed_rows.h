// The hidden states of the rows that need logits.
#pragma once

#include <span>

#include "base/result.h"
#include "model/step.h"
#include "ops/backend.h"
#include "runtime/rank_groups.h"
#include "runtime/step_tables.h"
#include "tensor/workspace.h"

namespace longspan::runtime {

// residual [own rows, hidden] -> [listed, hidden] in the order of `listed`, in the scope's memory:
// all context-parallel ranks get the rows of each other, and no more than these.
base::Result<tensor::View> GatherListed(const ops::Backend& backend, RankGroups& groups,
                                        const model::Step& step, const tensor::ConstView& residual,
                                        std::span<const ListedRow> listed,
                                        tensor::Workspace::Scope& scope);

// What is taken from the scope for `rows` listed ones.
int64_t GatherListedScratchBytes(int64_t rows, int64_t hidden, tensor::DType compute);

}  // namespace longspan::runtime
