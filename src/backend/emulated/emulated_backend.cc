#include "backend/emulated/emulated_backend.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <sys/prctl.h>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/host_memory.h"

namespace longspan::backend::emulated {
namespace {

using Clock = std::chrono::steady_clock;
using tensor::ExecutionContext;

// The next step follows the last one if it begins within this time of its end.
constexpr std::chrono::milliseconds kFollowsWithin(1);

class EmulatedQueue : public tensor::Queue {
 public:
  EmulatedQueue(const EmulatedTimes& times, int32_t token) : times_(times), token_(token) {}

  int32_t token() const { return token_; }

  // `cache` is the layer's.
  void AddLayer(const void* cache, const ops::StepTables& tables) {
    const int layer = layers_.try_emplace(cache, static_cast<int>(layers_.size())).first->second;
    const auto* begin = tables.slice_row_begin.data<int32_t>();
    const auto* positions = tables.positions.data<int32_t>();
    slices_.clear();
    for (int64_t slice = 0; slice < tables.slices; ++slice) {
      const int64_t rows = int64_t{begin[slice + 1]} - begin[slice];
      if (rows == 0) continue;
      const int64_t row = begin[slice] - begin[0];
      slices_.push_back(
          SliceOfAllRanks(positions[row], positions[row + rows - 1], rows, times_.rows_divided));
    }
    AddSeconds(times_.layer_s(layer, slices_));
  }

  void AddHead(int64_t rows) {
    if (times_.head_s) AddSeconds(times_.head_s(rows));
  }

  base::Status Synchronize() override {
    if (!queued_) return base::OkStatus();
    // The kernel may else round a thread's wake-up by 50 microseconds.
    prctl(PR_SET_TIMERSLACK, 1UL);
    timespec until;
    const auto since_boot =
        std::chrono::duration_cast<std::chrono::nanoseconds>(done_at_.time_since_epoch()).count();
    until.tv_sec = since_boot / 1'000'000'000;
    until.tv_nsec = since_boot % 1'000'000'000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
    woke_at_ = Clock::now();
    late_ = woke_at_ - done_at_;
    queued_ = false;
    return base::OkStatus();
  }

 private:
  void AddSeconds(double seconds) {
    if (!queued_) {
      const Clock::time_point now = Clock::now();
      done_at_ = now - woke_at_ < kFollowsWithin ? now - late_ : now;
      queued_ = true;
    }
    done_at_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  const EmulatedTimes& times_;  // the backend's
  int32_t token_;
  std::unordered_map<const void*, int> layers_;  // by their caches
  std::vector<plan::RowRange> slices_;           // of the layer at hand
  bool queued_ = false;
  Clock::time_point done_at_;
  Clock::time_point woke_at_;
  Clock::duration late_{};
};

template <typename Args>
void Nothing(ExecutionContext&, const Args&) {}

EmulatedQueue& QueueOf(ExecutionContext& context) {
  return static_cast<EmulatedQueue&>(context.queue);
}

void Attend(ExecutionContext& context, const ops::AttentionArgs& args) {
  QueueOf(context).AddLayer(args.key_cache.raw(), args.tables);
}

template <typename Args>
void AttendToLatents(ExecutionContext& context, const Args& args) {
  QueueOf(context).AddLayer(args.latent_cache.raw(), args.tables);
}

void Sample(ExecutionContext& context, const ops::SampleArgs& args) {
  QueueOf(context).AddHead(args.tokens.size(0));
  std::fill_n(args.tokens.data<int32_t>(), args.tokens.size(0), QueueOf(context).token());
  std::fill_n(args.logprobs.data<float>(), args.logprobs.size(0), 0.0f);
}

void TokenLogprob(ExecutionContext&, const ops::TokenLogprobArgs& args) {
  std::fill_n(args.logprobs.data<float>(), args.logprobs.size(0), 0.0f);
}

void TopLogprobs(ExecutionContext&, const ops::TopLogprobsArgs& args) {
  for (int64_t row = 0; row < args.tokens.size(0); ++row) {
    std::iota(args.tokens.row<int32_t>(row), args.tokens.row<int32_t>(row) + args.tokens.size(1),
              0);
    std::fill_n(args.logprobs.row<float>(row), args.logprobs.size(1), 0.0f);
  }
}

// All logits are equal, and the lowest tokens the best.
void TopLogits(ExecutionContext& context, const ops::TopLogitsArgs& args) {
  QueueOf(context).AddHead(args.tokens.size(0));
  for (int64_t row = 0; row < args.tokens.size(0); ++row) {
    std::iota(args.tokens.row<int32_t>(row), args.tokens.row<int32_t>(row) + args.tokens.size(1),
              0);
    std::fill_n(args.values.row<float>(row), args.values.size(1), 0.0f);
  }
  std::fill_n(args.log_sums.data<float>(), args.log_sums.size(0), 0.0f);
}

constexpr ops::OpTable kOps = {
    .embedding = Nothing,
    .gather_rows = Nothing,
    .rms_norm = Nothing,
    .layer_norm = Nothing,
    .add = Nothing,
    .linear = Nothing,
    .head_linear = Nothing,
    .rope_table = Nothing,
    .rope = Nothing,
    .cache_write = Nothing,
    .attention = Attend,
    .latent_attention = AttendToLatents,
    .merge_attention = Nothing,
    .expanded_latent_attention = AttendToLatents,
    .index_select = Nothing,
    .silu_mul = Nothing,
    .router = Nothing,
    .expert_order = Nothing,
    .grouped_linear = Nothing,
    .expert_combine = Nothing,
    .sample = Sample,
    .token_logprob = TokenLogprob,
    .top_logprobs = TopLogprobs,
    .top_logits = TopLogits,
};

// A weight that is not there.
class NoWeight : public ops::PackedWeight {
 public:
  using PackedWeight::PackedWeight;
  int64_t bytes() const override { return 0; }
};

class Emulated : public ops::Backend {
 public:
  Emulated(EmulatedTimes times, int32_t token) : times_(std::move(times)), token_(token) {}

  std::string_view name() const override { return "emulated"; }
  const ops::OpTable& ops() const override { return kOps; }
  base::Status CheckTypes(tensor::DType, tensor::DType) const override { return base::OkStatus(); }
  base::Result<std::unique_ptr<tensor::Queue>> CreateQueue(
      const ops::QueueOptions&) const override {
    return std::unique_ptr<tensor::Queue>(std::make_unique<EmulatedQueue>(times_, token_));
  }
  base::Result<tensor::Buffer> Allocate(int64_t bytes) const override {
    return tensor::AllocateHost(bytes);
  }
  // What is allocated is next to never touched, and takes no memory until then.
  int64_t AvailableBytes() const override { return int64_t{1} << 50; }
  int64_t WorkspaceBytes(const tensor::Queue&, const ops::WorkspaceShape&) const override {
    return 0;
  }
  base::Result<std::unique_ptr<ops::PackedWeight>> Pack(
      const ops::PackRequest& request) const override {
    int64_t rows = 0;
    for (const tensor::ConstView& part : request.parts) rows += part.size(0);
    return std::unique_ptr<ops::PackedWeight>(
        std::make_unique<NoWeight>(rows, request.parts[0].size(1)));
  }
  base::Status Upload(tensor::Queue&, std::span<const std::byte> host,
                      tensor::View device) const override {
    return tensor::CopyIn(host, device);
  }
  base::Status Download(tensor::Queue& queue, tensor::ConstView device,
                        std::span<std::byte> host) const override {
    LONGSPAN_RETURN_IF_ERROR(queue.Synchronize());
    return tensor::CopyOut(device, host);
  }

 private:
  EmulatedTimes times_;
  int32_t token_;
};

}  // namespace

plan::RowRange SliceOfAllRanks(int64_t first, int64_t last, int64_t rows, int ranks) {
  const int64_t all = rows * ranks;
  const int64_t begin = std::max<int64_t>(0, (first + last + 1 - all) / 2);
  return {begin, begin + all};
}

std::unique_ptr<ops::Backend> CreateEmulatedBackend(EmulatedTimes times, int32_t token) {
  return std::make_unique<Emulated>(std::move(times), token);
}

}  // namespace longspan::backend::emulated
