#include "apps/node_ranks.h"

#include <sstream>
#include <utility>

#include "apps/model_location.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/socket/socket.h"
#include "runtime/rank_log.h"
#include "runtime/rank_process.h"

namespace longspan::apps {
namespace {

using runtime::NodeLine;
using Ranks = std::vector<std::unique_ptr<runtime::RankHandle>>;

// The descriptors that a rank inherits, and the flags that tell it their numbers.
struct Inheritance {
  std::vector<comm::FileDescriptor> descriptors;
  std::vector<std::string> arguments = {"rank"};
  std::unique_ptr<comm::Channel> channel;  // the other end of its control line, where it is here

  void Add(const char* flag, comm::FileDescriptor descriptor) {
    std::vector<comm::FileDescriptor> list;
    list.push_back(std::move(descriptor));
    Add(flag, std::move(list));
  }
  void Add(const char* flag, std::vector<comm::FileDescriptor> list) {
    std::string numbers;
    for (comm::FileDescriptor& descriptor : list) {
      numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", 3 + descriptors.size());
      descriptors.push_back(std::move(descriptor));
    }
    arguments.emplace_back(flag);
    arguments.push_back(std::move(numbers));
  }
};

class ShareBuilder {
 public:
  ShareBuilder(const runtime::StageShare& share, const runtime::NodeLaunch& launch, NodeLines lines)
      : share_(share),
        launch_(launch),
        lines_(std::move(lines)),
        ranks_(static_cast<size_t>(share.count()) * static_cast<size_t>(launch.lanes)) {}

  base::Result<std::vector<Inheritance>> Build() {
    LONGSPAN_RETURN_IF_ERROR(AddLog());
    for (int stage = share_.first; stage < share_.end; ++stage) {
      for (int lane = 0; lane < launch_.lanes; ++lane)
        LONGSPAN_RETURN_IF_ERROR(AddControl({stage, lane}));
      LONGSPAN_RETURN_IF_ERROR(AddStagePeers(stage));
    }
    const int last = launch_.stages - 1;
    for (int lane = 0; lane < launch_.lanes; ++lane) {
      for (int stage = 1; stage <= last; ++stage)
        LONGSPAN_RETURN_IF_ERROR(Connect(NodeLine::Kind::kResidual, {stage - 1, lane}, "--next",
                                         {stage, lane}, "--previous"));
      if (launch_.ring)
        LONGSPAN_RETURN_IF_ERROR(
            Connect(NodeLine::Kind::kResidual, {last, lane}, "--next", {0, lane}, "--previous"));
      if (last > 0)
        LONGSPAN_RETURN_IF_ERROR(
            Connect(NodeLine::Kind::kTokens, {last, lane}, "--tokens", {0, lane}, "--tokens"));
    }
    return std::move(ranks_);
  }

  // The writing end of the step log, where the leader writes it; null where a rank does, or where
  // there is one rank, whose channel is as good.
  std::unique_ptr<comm::JournalWriter> TakeLog() { return std::move(log_); }

 private:
  struct Place {
    int stage;
    int lane;
  };

  Inheritance& Rank(const Place& place) {
    const int64_t stage = place.stage - share_.first;
    return ranks_[static_cast<size_t>(stage * launch_.lanes + place.lane)];
  }

  NodeLine LineTo(NodeLine::Kind kind, const Place& place) const {
    return {launch_.number, kind, place.stage, place.lane};
  }

  // The end of a line with another node; the nodes have seen to it that it is there.
  comm::FileDescriptor Take(NodeLine::Kind kind, const Place& to) {
    const auto found = lines_.find(LineTo(kind, to));
    LONGSPAN_CHECK(found != lines_.end(), "no line for stage {}", to.stage);
    return std::move(found->second);
  }

  bool leader_is_here() const {
    return !lines_.contains(LineTo(NodeLine::Kind::kControl, {share_.first, 0}));
  }

  base::Status AddLog() {
    if (ranks_.size() == 1) return base::OkStatus();
    std::vector<comm::FileDescriptor> writer;
    for (Inheritance& rank : ranks_) {
      LONGSPAN_ASSIGN_OR_RETURN(auto pair, comm::CreateSocketPair());
      writer.push_back(std::move(pair.first));
      rank.Add("--plans", std::move(pair.second));
    }
    if (leader_is_here()) {
      LONGSPAN_ASSIGN_OR_RETURN(log_, comm::CreateSharedMemoryJournal(std::move(writer)));
    } else {
      ranks_.front().Add("--relay", std::move(writer));
    }
    return base::OkStatus();
  }

  base::Status AddControl(const Place& place) {
    if (lines_.contains(LineTo(NodeLine::Kind::kControl, place))) {
      Rank(place).Add("--leader", Take(NodeLine::Kind::kControl, place));
      return base::OkStatus();
    }
    LONGSPAN_ASSIGN_OR_RETURN(auto control, comm::CreateSocketPair());
    LONGSPAN_ASSIGN_OR_RETURN(Rank(place).channel,
                              comm::CreateSocketChannel(std::move(control.first)));
    Rank(place).Add("--leader", std::move(control.second));
    return base::OkStatus();
  }

  // A line between every two ranks of a stage.
  base::Status AddStagePeers(int stage) {
    if (launch_.lanes == 1) return base::OkStatus();
    std::vector<std::vector<comm::FileDescriptor>> peers(static_cast<size_t>(launch_.lanes));
    for (size_t a = 0; a < peers.size(); ++a) {
      for (size_t b = a + 1; b < peers.size(); ++b) {
        LONGSPAN_ASSIGN_OR_RETURN(auto pair, comm::CreateSocketPair());
        peers[a].push_back(std::move(pair.first));
        peers[b].push_back(std::move(pair.second));
      }
    }
    for (int lane = 0; lane < launch_.lanes; ++lane)
      Rank({stage, lane}).Add("--stage-peers", std::move(peers[static_cast<size_t>(lane)]));
    return base::OkStatus();
  }

  // Gives both ranks an end, where they are here.
  base::Status Connect(NodeLine::Kind kind, const Place& from, const char* from_flag,
                       const Place& to, const char* to_flag) {
    if (share_.Has(from.stage) && share_.Has(to.stage)) {
      LONGSPAN_ASSIGN_OR_RETURN(auto pair, comm::CreateSocketPair());
      Rank(from).Add(from_flag, std::move(pair.first));
      Rank(to).Add(to_flag, std::move(pair.second));
    } else if (share_.Has(from.stage)) {
      Rank(from).Add(from_flag, Take(kind, to));
    } else if (share_.Has(to.stage)) {
      Rank(to).Add(to_flag, Take(kind, to));
    }
    return base::OkStatus();
  }

  const runtime::StageShare share_;
  const runtime::NodeLaunch& launch_;
  NodeLines lines_;
  std::vector<Inheritance> ranks_;
  std::unique_ptr<comm::JournalWriter> log_;
};

}  // namespace

base::Result<Ranks> StartShare(const runtime::StageShare& share, const runtime::NodeLaunch& launch,
                               NodeLines lines,
                               const std::vector<std::vector<std::string>>& arguments) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto program, ProgramPath());
  ShareBuilder builder(share, launch, std::move(lines));
  LONGSPAN_ASSIGN_OR_RETURN(auto inheritances, builder.Build());
  Ranks ranks;
  for (Inheritance& each : inheritances) {
    if (const size_t index = ranks.size(); index < arguments.size())
      each.arguments.insert(each.arguments.end(), arguments[index].begin(), arguments[index].end());
    LONGSPAN_ASSIGN_OR_RETURN(
        auto rank, runtime::StartRankProcess(std::move(each.channel),
                                             {.program = program.string(),
                                              .arguments = std::move(each.arguments),
                                              .inherited = std::move(each.descriptors)}));
    ranks.push_back(std::move(rank));
  }
  return runtime::ShareLog(std::move(ranks), builder.TakeLog());
}

std::string JoinText(int node, const comm::TcpAddress& listens) {
  return fmt::format("join {} {}", node, listens.ToString());
}

base::Result<JoiningNode> ParseJoinText(const std::string& text) {
  std::istringstream words(text);
  std::string first;
  JoiningNode joining;
  words >> first >> joining.node >> joining.address;
  if (!words || first != "join" || !comm::TcpAddress::Parse(joining.address).ok())
    return base::DataLoss("a connection introduces itself as '{}'", text);
  return joining;
}

comm::Greeting GreetingOf(const NodeOptions& options, std::string identity) {
  return {
      .build = options.version, .identity = std::move(identity), .agreement = options.agreement};
}

base::Status CheckNodeAddress(const std::string& address) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto parsed, comm::TcpAddress::Parse(address));
  if (parsed.port == 0)
    return base::InvalidArgument("--dist-init-addr {} needs a port above 0", address);
  return base::OkStatus();
}

}  // namespace longspan::apps
