#include <thread>

#include "runtime/rank_handle.h"

namespace longspan::runtime {
namespace {

class RankThread : public RankHandle {
 public:
  RankThread(std::unique_ptr<comm::Channel> channel, RankLinks links, BackendFinder find_backend)
      : channel_(std::move(channel)),
        links_(std::move(links)),
        thread_([this, find = std::move(find_backend)] { (void)RunRank(links_, find); }) {}

  ~RankThread() override {
    RequestEnd();
    thread_.join();
  }

  comm::Channel& channel() override { return *channel_; }
  void RequestEnd() override { channel_->Close(); }
  std::string DescribeEnd() override { return {}; }

 private:
  std::unique_ptr<comm::Channel> channel_;
  RankLinks links_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<RankHandle> StartRankThread(std::unique_ptr<comm::Channel> channel, RankLinks links,
                                            BackendFinder find_backend) {
  return std::make_unique<RankThread>(std::move(channel), std::move(links),
                                      std::move(find_backend));
}

}  // namespace longspan::runtime
