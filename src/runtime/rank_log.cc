#include "runtime/rank_log.h"

#include <utility>

namespace longspan::runtime {
namespace {

// All but SendPlan is the rank's own.
class RankOfNode : public RankHandle {
 public:
  explicit RankOfNode(std::unique_ptr<RankHandle> rank) : rank_(std::move(rank)) {}

  comm::Channel& channel() override { return rank_->channel(); }
  base::Status SendPlan(const Frame& /*plan*/) override { return base::OkStatus(); }
  void RequestEnd() override { rank_->RequestEnd(); }
  void Kill() override { rank_->Kill(); }
  std::string DescribeEnd() override { return rank_->DescribeEnd(); }
  std::string DescribeLoss() override { return rank_->DescribeLoss(); }

 private:
  std::unique_ptr<RankHandle> rank_;
};

class RankWithLog : public RankOfNode {
 public:
  RankWithLog(std::unique_ptr<RankHandle> rank, std::unique_ptr<comm::JournalWriter> log)
      : RankOfNode(std::move(rank)), log_(std::move(log)) {}

  base::Status SendPlan(const Frame& plan) override { return log_->Append(plan); }
  void RequestEnd() override {
    log_->Close();
    RankOfNode::RequestEnd();
  }
  void Kill() override {
    log_->Close();
    RankOfNode::Kill();
  }

 private:
  std::unique_ptr<comm::JournalWriter> log_;
};

}  // namespace

std::vector<std::unique_ptr<RankHandle>> ShareLog(std::vector<std::unique_ptr<RankHandle>> ranks,
                                                  std::unique_ptr<comm::JournalWriter> log) {
  LONGSPAN_CHECK(!ranks.empty(), "a node without ranks");
  if (log != nullptr) ranks[0] = std::make_unique<RankWithLog>(std::move(ranks[0]), std::move(log));
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    ranks[rank] = std::make_unique<RankOfNode>(std::move(ranks[rank]));
  return ranks;
}

}  // namespace longspan::runtime
