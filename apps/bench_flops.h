// How much work a model's tokens are: what benches divide by.
//
// Counted as llama.cpp's and most papers' figures are: a multiply-add is two operations; products
// and attention only (norms, rotations, softmax and the router's choice are small beside them); a
// causal row attends to itself and what lies before it. The embedding is a look-up, and the head is
// computed for one row of a prompt: both are left out of a prefill's figure.
#pragma once

#include <cstdint>

#include "spec/model.h"
#include "tensor/dtype.h"

namespace longspan::apps {

// Weights of the layers' matrices that one token is multiplied with; of the experts, those chosen.
int64_t MatmulParametersPerToken(const spec::ModelSpec& model);

// Operations of one row's attention per token that it attends to, all layers together; of latent
// attention in its expanded form, which takes fewer of them than the absorbed one.
int64_t AttentionFlopsPerContextToken(const spec::ModelSpec& model);

// Operations of one row's indexer per token of its context, all layers together.
int64_t IndexFlopsPerContextToken(const spec::ModelSpec& model);

// Operations that compute positions [depth, depth + tokens) of a prompt.
double PrefillFlops(const spec::ModelSpec& model, int64_t depth, int64_t tokens);

// One step in which every sequence of a batch gets a token.
struct DecodeShape {
  int64_t batch = 1;
  double context = 0;  // tokens that each attends to, on average
  tensor::DType weights = tensor::DType::kBf16;
  tensor::DType kv_cache = tensor::DType::kBf16;
};

// Bytes that the step must read at least: the layers' matrices and the head once, of the experts as
// many as uniform independent choices of the batch would touch on average, and what attention and
// indexer read of each sequence's cache.
double DecodeBytes(const spec::ModelSpec& model, const DecodeShape& shape);

}  // namespace longspan::apps
