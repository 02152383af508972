// How fast single ops are: memory with random numbers for their arguments, and a clock.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "ops/backend.h"
#include "ops/dispatch.h"
#include "ops/step_tables.h"

namespace longspan::apps {

struct OpFigure {
  std::string op;
  std::string shape;
  double seconds = 0;  // the median of the repeats
  double flops = 0;    // two per multiply-add; 0 where an op has few beside what it moves
  double bytes = 0;    // that must be read and written at least
};

// Slices of a step that end together: each the last rows of a sequence of `keys` tokens.
struct SliceShape {
  int64_t slices = 1;
  int64_t rows = 1;  // of each
  int64_t keys = 1;  // of each, its own rows included

  int64_t all_rows() const { return slices * rows; }
  // (row, key) pairs of causal attention, each row seeing at most `most` keys.
  double Pairs(int64_t most = INT64_MAX) const;
};

// A queue with its workspace, and the arguments of one op after another. Not thread-safe.
//
// The first failure of what it is asked for is kept and later requests get empty views; Time()
// returns it. So a probe may ask for all that it needs and look once.
class OpBench {
 public:
  static constexpr int64_t kPageSize = 64;

  struct Options {
    tensor::DType type = tensor::DType::kBf16;  // of activations, weights and caches
    int repeat = 5;                             // how often each op is timed
    // So long must a timed run take at least, or the clock and the wait would count.
    double shortest_run_s = 0.02;
    // More than the last cache of the machines at hand, several times.
    int64_t beyond_caches = int64_t{128} << 20;
  };
  static base::Result<std::unique_ptr<OpBench>> Create(const ops::Backend& backend,
                                                       const ops::QueueOptions& queue,
                                                       const Options& options);

  const ops::OpTable& ops() const { return backend_.ops(); }
  tensor::Queue& queue() { return *queue_; }
  tensor::DType type() const { return options_.type; }
  // How many copies of so many bytes exceed what caches hold: arguments that a step finds in memory
  // are taken from them in turn. 1 for a device.
  int64_t CopiesBeyondCaches(int64_t bytes) const;

  // Arguments; they live until the next call of Release().
  using Sizes = std::initializer_list<int64_t>;
  tensor::View Random(Sizes sizes) { return Random(options_.type, sizes); }
  tensor::View Random(tensor::DType type, Sizes sizes);  // f32 or bf16, in [-1, 1)
  tensor::View Indices(const std::vector<int32_t>& values, Sizes sizes);
  tensor::View Numbers(const std::vector<float>& values, Sizes sizes);
  tensor::View WideIndices(const std::vector<int64_t>& values, Sizes sizes);
  const ops::PackedWeight* Weight(int64_t rows, int64_t columns);
  std::vector<const ops::PackedWeight*> Weights(int64_t count, int64_t rows, int64_t columns);
  // The tables of `copies` steps, whose pages lie scattered over one cache of PagesOf(shape,
  // copies) pages.
  std::vector<ops::StepTables> Tables(const SliceShape& shape, int64_t copies);
  static int64_t PagesOf(const SliceShape& shape, int64_t copies);
  void Release();

  // Makes room for what an op takes for a step of that shape.
  void Reserve(const ops::WorkspaceShape& shape);

  template <typename Args>
  using Op = void (*)(tensor::ExecutionContext&, const Args&);
  // Once, untimed: what a later op needs.
  template <typename Args>
  void Run(Op<Args> op, const std::type_identity_t<Args>& args) {
    if (!failure_.ok()) return;
    tensor::ExecutionContext context{*queue_, workspace_};
    ops::Dispatch(context, op, args);
  }
  // Times the op over its variants in turn and completes the figure; then releases the memory.
  template <typename Args>
  base::Result<OpFigure> Time(Op<Args> op, const std::vector<Args>& variants,
                              const OpFigure& figure) {
    return TimeCalls(
        figure, [&](int64_t i) { Run(op, variants[static_cast<size_t>(i) % variants.size()]); });
  }

 private:
  OpBench(const ops::Backend& backend, const Options& options)
      : backend_(backend), options_(options) {}

  base::Result<OpFigure> TimeCalls(OpFigure figure, const std::function<void(int64_t)>& call);
  tensor::View Take(tensor::DType type, Sizes sizes);
  tensor::View Upload(tensor::DType type, std::span<const std::byte> values, Sizes sizes);
  void Keep(const base::Status& status);

  const ops::Backend& backend_;
  Options options_;
  std::unique_ptr<tensor::Queue> queue_;
  tensor::Workspace workspace_;
  base::Status failure_;
  std::vector<tensor::Buffer> buffers_;
  std::vector<std::unique_ptr<ops::PackedWeight>> weights_;
};

}  // namespace longspan::apps
