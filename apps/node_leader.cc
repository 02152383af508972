#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "apps/node_line.h"
#include "apps/node_ranks.h"
#include "base/log.h"
#include "comm/socket/socket.h"
#include "runtime/rank_log.h"

namespace longspan::apps {
namespace {

using runtime::NodeLine;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Ranks = std::vector<std::unique_ptr<runtime::RankHandle>>;

// How often a missing node is looked for besides those that connect.
constexpr milliseconds kTurn(100);
// A connection that does not introduce itself for so long holds up the others.
constexpr milliseconds kGreetWithin(2000);
constexpr milliseconds kFirstComplaint(3000);
constexpr milliseconds kComplainEvery(30000);

// A rank of another node.
class RemoteRank : public runtime::RankHandle {
 public:
  RemoteRank(std::unique_ptr<comm::Channel> channel, size_t node)
      : channel_(std::move(channel)), node_(node) {}
  ~RemoteRank() override { channel_->Close(); }

  comm::Channel& channel() override { return *channel_; }
  void RequestEnd() override { channel_->Close(); }
  std::string DescribeEnd() override { return {}; }
  std::string DescribeLoss() override {
    return fmt::format("its process on node {} or the connection to it is gone", node_);
  }

 private:
  std::unique_ptr<comm::Channel> channel_;
  size_t node_;
};

// Tells the user what is waited for, now and then.
class Complaint {
 public:
  template <typename Text>
  void Turn(const Text& text) {
    if (steady_clock::now() < due_) return;
    due_ = steady_clock::now() + kComplainEvery;
    base::Log("nodes").warn("{}", text());
  }

 private:
  steady_clock::time_point due_ = steady_clock::now() + kFirstComplaint;
};

class Leader : public NodeLeader {
 public:
  Leader(NodeOptions options, comm::TcpListener listener)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        shares_(runtime::SpreadStages(options_.shape.ranks, options_.nodes)),
        nodes_(static_cast<size_t>(options_.nodes)) {}

  ~Leader() override {
    for (Node& node : nodes_)
      if (node.channel != nullptr) (void)node.channel->Send(runtime::EncodeRunOver());
  }

  base::Result<Ranks> StartRanks() override {
    while (true) {
      LONGSPAN_RETURN_IF_ERROR(WaitForNodes());
      auto ranks = Launch();
      if (ranks.ok() || ranks.status().code() != base::StatusCode::kUnavailable) return ranks;
      log_.warn("{}", ranks.status().message());
    }
  }

 private:
  struct Node {
    std::unique_ptr<comm::Channel> channel;  // null while the node is missing
    std::string address;
  };

  // Nodes that are not connected; notices those that have gone.
  std::vector<int> Missing() {
    std::vector<int> missing;
    for (int number = 1; number < options_.nodes; ++number) {
      Node& node = nodes_[static_cast<size_t>(number)];
      // A node says nothing: whatever comes is its end.
      if (node.channel != nullptr && node.channel->ReceiveFor(milliseconds(0)).status().code() !=
                                         base::StatusCode::kDeadlineExceeded)
        node.channel.reset();
      if (node.channel == nullptr) missing.push_back(number);
    }
    return missing;
  }

  base::Status WaitForNodes() {
    Complaint complaint;
    while (true) {
      const auto missing = Missing();
      if (missing.empty()) return base::OkStatus();
      complaint.Turn([&] {
        return fmt::format("waiting for node {} of {} to connect to {}", fmt::join(missing, ", "),
                           options_.nodes, listener_.address().ToString());
      });
      LONGSPAN_RETURN_IF_ERROR(TakeConnection(nullptr));
    }
  }

  // Waits a turn for a connection: a node that joins, or a line of the current launch. Whatever
  // else comes is dropped.
  base::Status TakeConnection(NodeLines* lines) {
    auto socket = listener_.Accept(kTurn, options_.peer_timeout);
    if (socket.status().code() == base::StatusCode::kDeadlineExceeded) return base::OkStatus();
    if (!socket.ok()) return socket.status();
    const auto greeting =
        comm::ExchangeGreetings(*socket, GreetingOf(options_, "node 0"), kGreetWithin);
    if (!greeting.ok()) {
      log_.warn("a node that wants to join is refused: {}", greeting.status().message());
      return base::OkStatus();
    }
    if (const auto joining = ParseJoinText(greeting->identity); joining.ok())
      return Join(*joining, std::move(*socket));
    const auto line = NodeLine::Parse(greeting->identity);
    if (line.ok() && lines != nullptr && line->launch == launch_)
      lines->insert_or_assign(*line, std::move(*socket));
    return base::OkStatus();
  }

  base::Status Join(const JoiningNode& joining, comm::FileDescriptor socket) {
    (void)Missing();
    if (joining.node < 1 || joining.node >= options_.nodes ||
        nodes_[static_cast<size_t>(joining.node)].channel != nullptr) {
      log_.warn("node {} at {} is turned away: there is one already", joining.node,
                joining.address);
      return base::OkStatus();
    }
    LONGSPAN_ASSIGN_OR_RETURN(auto channel, comm::CreateSocketChannel(std::move(socket)));
    nodes_[static_cast<size_t>(joining.node)] = {std::move(channel), joining.address};
    log_.info("node {} has joined", joining.node);
    return base::OkStatus();
  }

  // The lines that other nodes make to this one.
  std::set<NodeLine> ExpectedLines() const {
    std::set<NodeLine> expected;
    const runtime::StageShare& own = shares_.front();
    for (int lane = 0; lane < options_.lanes; ++lane) {
      for (int stage = own.end; stage < options_.shape.ranks; ++stage)
        expected.insert({launch_, NodeLine::Kind::kControl, stage, lane});
      expected.insert({launch_, NodeLine::Kind::kResidual, own.end, lane});
      expected.insert({launch_, NodeLine::Kind::kTokens, 0, lane});
      if (options_.shape.is_ring()) expected.insert({launch_, NodeLine::Kind::kResidual, 0, lane});
    }
    return expected;
  }

  base::Result<NodeLines> CollectLines() {
    const auto expected = ExpectedLines();
    NodeLines lines;
    Complaint complaint;
    while (true) {
      std::vector<std::string> missing_lines;
      for (const NodeLine& line : expected)
        if (!lines.contains(line)) missing_lines.push_back(line.ToString());
      if (missing_lines.empty()) return lines;
      const auto missing = Missing();
      if (!missing.empty())
        return base::Unavailable("node {} is gone while the stages start",
                                 fmt::join(missing, ", "));
      complaint.Turn([&] {
        return fmt::format("waiting for other nodes to start their stages ({})",
                           fmt::join(missing_lines, ", "));
      });
      LONGSPAN_RETURN_IF_ERROR(TakeConnection(&lines));
    }
  }

  base::Result<Ranks> Launch() {
    runtime::NodeLaunch launch{.number = ++launch_,
                               .stages = options_.shape.ranks,
                               .lanes = options_.lanes,
                               .ring = options_.shape.is_ring()};
    launch.addresses.push_back(options_.leader);
    for (size_t node = 1; node < nodes_.size(); ++node)
      launch.addresses.push_back(nodes_[node].address);
    for (size_t node = 1; node < nodes_.size(); ++node)
      LONGSPAN_RETURN_IF_ERROR(nodes_[node].channel->Send(EncodeLaunch(launch)));
    LONGSPAN_ASSIGN_OR_RETURN(NodeLines lines, CollectLines());
    Ranks remote;
    for (size_t node = 1; node < nodes_.size(); ++node) {
      Ranks of_node;
      const int first = shares_[node].first * options_.lanes;
      for (int rank = first; rank < shares_[node].end * options_.lanes; ++rank) {
        const NodeLine control{launch_, NodeLine::Kind::kControl, rank / options_.lanes,
                               rank % options_.lanes};
        LONGSPAN_ASSIGN_OR_RETURN(auto channel,
                                  comm::CreateSocketChannel(std::move(lines.at(control))));
        of_node.push_back(std::make_unique<RemoteRank>(DelayedLine(std::move(channel)), node));
      }
      // The first of them writes the log of its node.
      of_node = runtime::ShareLog(std::move(of_node), nullptr);
      std::move(of_node.begin(), of_node.end(), std::back_inserter(remote));
    }
    LONGSPAN_ASSIGN_OR_RETURN(Ranks ranks,
                              StartShare(shares_.front(), launch, std::move(lines), {}));
    std::move(remote.begin(), remote.end(), std::back_inserter(ranks));
    return ranks;
  }

  const NodeOptions options_;
  comm::TcpListener listener_;
  const std::vector<runtime::StageShare> shares_;
  std::vector<Node> nodes_;  // [0] is this one and has no channel
  uint64_t launch_ = 0;
  spdlog::logger& log_ = base::Log("nodes");
};

}  // namespace

base::Result<std::unique_ptr<NodeLeader>> NodeLeader::Listen(NodeOptions options) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto address, comm::TcpAddress::Parse(options.leader));
  LONGSPAN_ASSIGN_OR_RETURN(auto listener, comm::TcpListener::Listen(address));
  return std::unique_ptr<NodeLeader>(
      std::make_unique<Leader>(std::move(options), std::move(listener)));
}

}  // namespace longspan::apps
