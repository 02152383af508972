// Products of groups of rows, each with a weight of its own: what linear, head_linear and
// grouped_linear have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/packed_weight.h"
#include "tensor/dtype.h"
#include "tensor/execution_context.h"

namespace longspan::backend::cuda {

// out[i] = W_g x[source_rows[i]] + bias for the rows i of every group g. Strides are in elements.
struct Product {
  const void* x = nullptr;
  int64_t x_stride = 0;        // between rows
  int64_t x_group_stride = 0;  // from a group's first column to the next one's
  void* out = nullptr;
  int64_t out_stride = 0;
  int64_t out_group_stride = 0;
  const float* bias = nullptr;  // [features], or null
  // On the device, [groups + 1]: where the rows of every group begin; null: all have rows 0 .. rows
  // - 1.
  const int32_t* begin = nullptr;
  const int32_t* source_rows = nullptr;  // on the device; null: row i itself
  int64_t rows = 0;                      // of all groups together where they have a `begin`
  int64_t features = 0;
  int64_t columns = 0;
};

struct ProductTypes {
  tensor::DType x;  // and the weights
  tensor::DType out;
};

// Every element is a sum over the columns in an order that depends on nothing else: the same bits
// for any rows and groups beside it.
void Multiply(tensor::ExecutionContext& context, const Product& product,
              std::span<const ops::PackedWeight* const> weights, ProductTypes types,
              std::string_view op);

// On the matrix unit (tensor_product.cu): bf16, weights with maps, x aligned to 16 bytes in all its
// strides. At most kProductGroups weights.
constexpr int kProductGroups = 128;
void MultiplyOnMatrixUnit(tensor::ExecutionContext& context, const Product& product,
                          std::span<const ops::PackedWeight* const> weights, tensor::DType out);

// By multiply-adds in f32 (plain_product.cu): any types and alignment. At most kProductGroups.
void MultiplyPlainly(tensor::ExecutionContext& context, const Product& product,
                     std::span<const ops::PackedWeight* const> weights, ProductTypes types);

}  // namespace longspan::backend::cuda
