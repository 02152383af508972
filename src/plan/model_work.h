// How much a model's layers compute, counted in multiply-adds of products and attention.
#pragma once

#include <cstdint>

#include "spec/model.h"

namespace longspan::plan {

// Weights that one token is multiplied with in one layer's attention, its indexer included. Of
// latent attention both forms, expanded and absorbed, have the same number.
int64_t AttentionParameters(const spec::ModelSpec& model);

// The same in a dense feed-forward layer.
int64_t MlpParameters(const spec::ModelSpec& model);

// The same in a mixture-of-experts layer, with so many routed experts: router and shared experts
// included.
double MoeParameters(const spec::ModelSpec& model, double experts);

// Multiply-adds of one row's queries with one position's keys and of its probability with the
// values, in one layer, all heads. Of latent attention those of its expanded form, which are fewer.
int64_t AttentionProducts(const spec::ModelSpec& model);

// Whether rows [begin, begin + rows) of a sequence are cheaper to compute in latent attention's
// expanded form, which makes keys and values of all positions before them once more, than in its
// absorbed form, whose products with a position are longer. Memory traffic is not looked at.
bool ExpandedIsCheaper(const spec::LatentAttentionSpec& latent, int64_t begin, int64_t rows);

// Multiply-adds of one row's index queries with one position's index key, in one layer; 0 without
// an indexer.
int64_t IndexProducts(const spec::ModelSpec& model);

// The positions that a row attends to of `context` ones.
double AttendedPositions(const spec::ModelSpec& model, double context);

}  // namespace longspan::plan
