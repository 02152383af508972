// What the ranks of a stage do together while they compute a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/view.h"

namespace longspan::model {

// The collective steps between the ops of a layer; of a stage with one rank they do nothing. Like
// ops they do not fail: what goes wrong between ranks is told where the step ends, as what a device
// reports is, and until then what they leave is unspecified.
class StageRanks {
 public:
  virtual ~StageRanks() = default;

  // Whether all has gone well so far. If not, what is computed from here on is of use to nobody.
  virtual bool ok() const = 0;

  // x, dense, becomes the sum of the tensor-parallel ranks' x, the same bits at all of them.
  virtual void SumOverTensorRanks(const tensor::View& x) = 0;

  // Memory is the step's, on its device. Sends outgoing[r] to the r-th of the ranks that divide the
  // experts (spec::ExpertLanes), and receives incoming[r] from it, while the caller does other
  // work; the memory stays the exchange's until AwaitExperts. The two ranks' sizes agree. One
  // exchange at a time.
  virtual void ExchangeWithExperts(std::span<const std::span<const std::byte>> outgoing,
                                   std::span<const std::span<std::byte>> incoming) = 0;
  // The same with a few bytes, in memory of the host wherever the step's is.
  virtual void TellExperts(std::span<const std::span<const std::byte>> outgoing,
                           std::span<const std::span<std::byte>> incoming) = 0;
  // Whether all of it has come; where the step's memory is a device's, it will have for what is
  // queued from here on. false where something went wrong.
  virtual bool AwaitExperts() = 0;

  // x, dense, holds a block of counts[rank] elements of every context-parallel rank, in order; the
  // own one is filled. Posts that the others' come, which is sure after FinishGathers: until then x
  // stays as it is, and the rank computes on. Several may be under way.
  virtual void StartGather(const tensor::View& x, std::span<const int64_t> counts) = 0;
  // x holds a block of outgoing[rank] elements for every context-parallel rank, and y gets one of
  // incoming[rank] elements from it, both in order. Otherwise as StartGather.
  virtual void StartExchange(const tensor::View& x, std::span<const int64_t> outgoing,
                             const tensor::View& y, std::span<const int64_t> incoming) = 0;
  virtual void FinishGathers() = 0;
};

// A stage of one rank.
class LoneRank : public StageRanks {
 public:
  bool ok() const override { return true; }
  void SumOverTensorRanks(const tensor::View& /*x*/) override {}
  void ExchangeWithExperts(std::span<const std::span<const std::byte>> /*outgoing*/,
                           std::span<const std::span<std::byte>> /*incoming*/) override {
    LONGSPAN_CHECK(false, "a rank that has all experts exchanges nothing");
  }
  void TellExperts(std::span<const std::span<const std::byte>> /*outgoing*/,
                   std::span<const std::span<std::byte>> /*incoming*/) override {
    LONGSPAN_CHECK(false, "a rank that has all experts tells nobody of them");
  }
  bool AwaitExperts() override { return false; }
  void StartGather(const tensor::View& /*x*/, std::span<const int64_t> /*counts*/) override {}
  void StartExchange(const tensor::View& /*x*/, std::span<const int64_t> /*outgoing*/,
                     const tensor::View& /*y*/, std::span<const int64_t> /*incoming*/) override {}
  void FinishGathers() override {}
};

}  // namespace longspan::model
