// The backends and types that the op suite runs on. A new backend is a line in backends.cc.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/backend.h"

namespace longspan::op_suite {

struct BackendCase {
  const ops::Backend* backend = nullptr;
  tensor::DType compute = tensor::DType::kF32;  // of activations and weights
  tensor::DType kv_cache = tensor::DType::kF32;
};

// Those that are compared with the reference.
std::vector<BackendCase> ComparedBackends();

// The reference too: for properties that hold on every backend.
std::vector<BackendCase> AllBackends();

// "cpu_bf16", or "cpu_f32_kv_bf16" where the cache has another type.
std::string CaseName(const testing::TestParamInfo<BackendCase>& info);
void PrintTo(const BackendCase& c, std::ostream* out);

class BackendTest : public testing::TestWithParam<BackendCase> {};

}  // namespace longspan::op_suite
