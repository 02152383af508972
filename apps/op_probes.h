// How fast single ops are: each on inputs of random numbers, in bf16.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "ops/dispatch.h"

namespace longspan::apps {

struct OpFigure {
  std::string op;
  std::string shape;
  double seconds = 0;  // the median of the repeats
  double flops = 0;    // two per multiply-add
  double bytes = 0;    // that must be read and written at least
};

// A queue, its memory, and the probes. One thread.
class OpProbes {
 public:
  // `repeat`: how often each op is timed.
  static base::Result<std::unique_ptr<OpProbes>> Create(const ops::Backend& backend,
                                                        const ops::QueueOptions& options,
                                                        int repeat);

  tensor::Queue& queue() { return *queue_; }

  // [rows, columns] times the transpose of [n, columns].
  base::Result<OpFigure> Product(int64_t rows, int64_t columns, int64_t n);
  // Every row through `choices` of the experts, drawn at random.
  base::Result<OpFigure> GroupedProduct(int64_t rows, int64_t experts, int64_t choices,
                                        int64_t columns, int64_t n);
  struct AttentionShape {
    int64_t heads = 64;
    int64_t kv_heads = 4;
    int64_t head_dim = 128;
    int64_t sequences = 1;
    int64_t queries = 0;  // of each sequence, its last positions
    int64_t keys = 0;     // of each sequence
  };
  base::Result<OpFigure> Attention(const AttentionShape& shape);

 private:
  OpProbes(const ops::Backend& backend, int repeat) : backend_(backend), repeat_(repeat) {}

  // Memory that lasts for one probe.
  struct Memory {
    std::vector<tensor::Buffer> buffers;
  };
  using Sizes = std::initializer_list<int64_t>;
  base::Result<tensor::View> Random(Memory& memory, tensor::DType type, Sizes sizes);
  template <typename T>
  base::Result<tensor::View> Table(Memory& memory, const std::vector<T>& values, Sizes sizes);
  base::Result<std::unique_ptr<ops::PackedWeight>> Weight(int64_t rows, int64_t columns);
  base::Result<tensor::Workspace> WorkspaceFor(const ops::WorkspaceShape& shape);
  base::Result<double> Time(const std::function<void()>& run);

  const ops::Backend& backend_;
  int repeat_;
  std::unique_ptr<tensor::Queue> queue_;
};

}  // namespace longspan::apps
