// Comparison of what two backends computed.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "tests/ops/backends.h"
#include "tests/ops/tolerance.h"
#include "tests/support/random_values.h"
#include "tests/support/test_device.h"

namespace longspan::op_suite {

using support::TestDevice;
using tensor::ConstView;
using tensor::DType;
using tensor::View;

// got[i] within bound(i) of want[i]; NaN is not.
template <typename Bound>
void ExpectWithin(std::span<const float> got, std::span<const float> want, const Bound& bound) {
  ASSERT_EQ(got.size(), want.size());
  int failures = 0;
  for (size_t i = 0; i < got.size() && failures < 5; ++i) {
    const double allowed = bound(static_cast<int64_t>(i));
    const bool close = std::abs(static_cast<double>(got[i]) - want[i]) <= allowed;
    if (!close) ++failures;
    EXPECT_TRUE(close) << "element " << i << ": " << got[i] << " instead of " << want[i]
                       << ", off by " << std::abs(got[i] - want[i]) << " of " << allowed;
  }
}

// The device under test and the reference.
struct Devices {
  Devices(const BackendCase& c, const ops::WorkspaceShape& shape)
      : tested(*c.backend, 2, shape), reference(backend::reference::ReferenceBackend(), 1, shape) {}

  TestDevice tested;
  TestDevice reference;
};

// Columns [begin, begin + count) of a wider matrix that holds `values` there and a mark elsewhere.
class ColumnSlice {
 public:
  static constexpr float kMark = 77;

  ColumnSlice(TestDevice& device, std::span<const float> values, DType type, int64_t columns)
      : device_(device) {
    const int64_t rows = static_cast<int64_t>(values.size()) / columns;
    const int64_t wide = kBefore + columns + kAfter;
    std::vector<float> all(rows * wide, kMark);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i)
        all[row * wide + kBefore + i] = values[row * columns + i];
    wide_ = device.Floats(all, type, {rows, wide});
    view_ = wide_.Columns(kBefore, columns);
  }

  const View& view() const { return view_; }

  // Nothing but the slice has been written.
  void ExpectMarks() const {
    const int64_t after = wide_.size(1) - kAfter;
    for (const View& edge : {wide_.Columns(0, kBefore), wide_.Columns(after, kAfter)})
      for (const float value : device_.ReadFloats(edge)) ASSERT_EQ(value, kMark);
  }

 private:
  // Odd on purpose: rows that no vector instruction finds aligned.
  static constexpr int64_t kBefore = 3;
  static constexpr int64_t kAfter = 6;

  TestDevice& device_;
  View wide_;
  View view_;
};

}  // namespace longspan::op_suite
