#include <optional>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "apps/node_ranks.h"
#include "base/log.h"
#include "comm/deadline.h"
#include "comm/socket/socket.h"
#include "tensor/thread_pool.h"

namespace longspan::apps {
namespace {

using base::StatusCode;
using runtime::NodeLine;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Node 0 may be started later than this one.
constexpr seconds kFirstConnectWithin(600);
// Once it was there it listens as long as it lives; but it may be busy, or behind a line that has
// been cut.
constexpr seconds kConnectAgainWithin(10);
constexpr seconds kJoinAgainWithin(120);
// A node takes connections only when it starts ranks.
constexpr seconds kGreetWithin(10);
constexpr milliseconds kStrangerGreetsWithin(2000);
constexpr seconds kLinesWithin(30);
constexpr milliseconds kTurn(100);
constexpr milliseconds kBeforeNextTry(500);

class Follower {
 public:
  explicit Follower(const NodeOptions& options) : options_(options) {}

  base::Status Run() {
    LONGSPAN_RETURN_IF_ERROR(Join(DeadlineAfter(kFirstConnectWithin), kFirstConnectWithin));
    while (true) {
      base::Status status = Serve();
      if (status.ok()) return status;
      KillRanks();
      leader_.reset();
      log_.warn("{}; node {} joins again", status.message(), options_.node);
      std::this_thread::sleep_for(kBeforeNextTry);
      LONGSPAN_RETURN_IF_ERROR(Join(DeadlineAfter(kJoinAgainWithin), kConnectAgainWithin));
    }
  }

 private:
  using TimePoint = steady_clock::time_point;
  static TimePoint DeadlineAfter(seconds time) { return comm::DeadlineAfter(time); }

  // Connects to node 0 until the deadline. Each try to reach its host takes `connect_within`.
  base::Status Join(TimePoint deadline, seconds connect_within) {
    base::Status status;
    do {
      status = TryToJoin(connect_within);
      if (status.ok() || status.code() == StatusCode::kInvalidArgument) return status;
      if (!reached_) break;
      std::this_thread::sleep_for(kBeforeNextTry);
    } while (steady_clock::now() < deadline);
    return base::Unavailable("node 0 is gone: {}", status.message());
  }

  base::Status TryToJoin(seconds connect_within) {
    reached_ = false;
    LONGSPAN_ASSIGN_OR_RETURN(const auto leader, comm::TcpAddress::Parse(options_.leader));
    LONGSPAN_ASSIGN_OR_RETURN(auto socket,
                              comm::ConnectTcp(leader, connect_within, options_.peer_timeout));
    reached_ = true;
    // Where node 0 sees this host, the others find it too.
    LONGSPAN_ASSIGN_OR_RETURN(comm::TcpAddress own, comm::LocalAddress(socket));
    own.port = 0;
    LONGSPAN_ASSIGN_OR_RETURN(auto listener, comm::TcpListener::Listen(own));
    listener_.emplace(std::move(listener));
    LONGSPAN_RETURN_IF_ERROR(Greet(socket, JoinText(options_.node, listener_->address())).status());
    LONGSPAN_ASSIGN_OR_RETURN(leader_, comm::CreateSocketChannel(std::move(socket)));
    return base::OkStatus();
  }

  base::Result<comm::Greeting> Greet(const comm::FileDescriptor& socket, std::string identity) {
    return comm::ExchangeGreetings(socket, GreetingOf(options_, std::move(identity)), kGreetWithin);
  }

  // Does what node 0 says; ok when the run is over.
  base::Status Serve() {
    while (true) {
      base::Result<runtime::Frame> frame = base::Aborted("none yet");
      if (next_) {
        frame = std::move(*next_);
        next_.reset();
      } else {
        frame = leader_->Receive();
      }
      if (!frame.ok()) return base::Unavailable("the connection to node 0 is gone");
      LONGSPAN_ASSIGN_OR_RETURN(const auto kind, runtime::KindOf(*frame));
      if (kind == runtime::FrameKind::kRunOver) return base::OkStatus();
      LONGSPAN_ASSIGN_OR_RETURN(const auto launch, runtime::DecodeLaunch(*frame));
      KillRanks();
      base::Status launched = Launch(launch);
      if (!launched.ok() && !next_) return launched;
    }
  }

  // Ranks of a run that is over leave by themselves; these are of no use any more.
  void KillRanks() {
    for (const auto& rank : ranks_) rank->Kill();
    ranks_.clear();
  }

  base::Status Launch(const runtime::NodeLaunch& launch) {
    if (static_cast<int>(launch.addresses.size()) != options_.nodes)
      return base::DataLoss("node 0 speaks of {} nodes", launch.addresses.size());
    const auto share = runtime::SpreadStages(launch.stages, options_.nodes)[options_.node];
    NodeLines lines;
    const auto connect = [&](NodeLine::Kind kind, int stage, int lane, int node) -> base::Status {
      const NodeLine line{launch.number, kind, stage, lane};
      // Node 0 may have another name here than there.
      LONGSPAN_ASSIGN_OR_RETURN(
          const auto address,
          comm::TcpAddress::Parse(node == 0 ? options_.leader : launch.addresses[node]));
      LONGSPAN_ASSIGN_OR_RETURN(auto socket, Connect(address, line));
      lines.emplace(line, std::move(socket));
      return base::OkStatus();
    };
    // The next node connects in this order too.
    for (int lane = 0; lane < launch.lanes; ++lane) {
      for (int stage = share.first; stage < share.end; ++stage)
        LONGSPAN_RETURN_IF_ERROR(connect(NodeLine::Kind::kControl, stage, lane, 0));
      LONGSPAN_RETURN_IF_ERROR(
          connect(NodeLine::Kind::kResidual, share.first, lane, options_.node - 1));
      if (share.Has(launch.stages - 1)) {
        LONGSPAN_RETURN_IF_ERROR(connect(NodeLine::Kind::kTokens, 0, lane, 0));
        if (launch.ring) LONGSPAN_RETURN_IF_ERROR(connect(NodeLine::Kind::kResidual, 0, lane, 0));
      } else {
        const NodeLine out{launch.number, NodeLine::Kind::kResidual, share.end, lane};
        LONGSPAN_ASSIGN_OR_RETURN(auto socket, AwaitLine(out));
        lines.emplace(out, std::move(socket));
      }
    }
    LONGSPAN_ASSIGN_OR_RETURN(ranks_, StartShare(share, launch, std::move(lines),
                                                 Arguments(share.count() * launch.lanes)));
    return base::OkStatus();
  }

  base::Result<comm::FileDescriptor> Connect(const comm::TcpAddress& address,
                                             const NodeLine& line) {
    LONGSPAN_ASSIGN_OR_RETURN(
        auto socket, comm::ConnectTcp(address, kConnectAgainWithin, options_.peer_timeout));
    LONGSPAN_RETURN_IF_ERROR(Greet(socket, line.ToString()).status());
    return socket;
  }

  // The line that the next node makes. Others are of an earlier launch, or strangers.
  base::Result<comm::FileDescriptor> AwaitLine(const NodeLine& line) {
    const auto deadline = DeadlineAfter(kLinesWithin);
    const auto greeting = GreetingOf(options_, fmt::format("node {}", options_.node));
    while (steady_clock::now() < deadline) {
      auto socket = listener_->Accept(kTurn, options_.peer_timeout);
      if (socket.ok()) {
        const auto peer = comm::ExchangeGreetings(*socket, greeting, kStrangerGreetsWithin);
        if (peer.ok() && peer->identity == line.ToString()) return socket;
      } else if (socket.status().code() != StatusCode::kDeadlineExceeded) {
        return socket.status();
      }
      // A new order, or the end.
      auto frame = leader_->ReceiveFor(milliseconds(0));
      if (frame.ok()) {
        next_ = std::move(frame);
        return base::Aborted("node 0 has other orders");
      }
      if (frame.status().code() != StatusCode::kDeadlineExceeded) return frame.status();
    }
    return base::DeadlineExceeded("node {} does not connect to {}", options_.node + 1,
                                  listener_->address().ToString());
  }

  // What the ranks know better here than node 0, by rank.
  std::vector<std::vector<std::string>> Arguments(int ranks) const {
    std::vector<std::vector<std::string>> arguments;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto cores = tensor::CoresOfRank(rank, ranks, options_.threads);
      arguments.push_back(
          {"--model-dir", options_.model_dir, "--threads", std::to_string(options_.threads)});
      if (cores.empty()) continue;
      arguments.back().emplace_back("--cores");
      arguments.back().push_back(fmt::format("{}", fmt::join(cores, ",")));
    }
    return arguments;
  }

  const NodeOptions& options_;
  bool reached_ = false;  // node 0's host took the last connection
  std::optional<comm::TcpListener> listener_;
  std::unique_ptr<comm::Channel> leader_;
  std::optional<base::Result<runtime::Frame>> next_;
  std::vector<std::unique_ptr<runtime::RankHandle>> ranks_;
  spdlog::logger& log_ = base::Log("nodes");
};

}  // namespace

base::Status FollowLeader(const NodeOptions& options) { return Follower(options).Run(); }

}  // namespace longspan::apps
