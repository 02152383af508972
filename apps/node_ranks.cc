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
      : share_(share), launch_(launch), lines_(std::move(lines)), ranks_(share.count()) {}

  base::Result<std::vector<Inheritance>> Build() {
    LONGSPAN_RETURN_IF_ERROR(AddLog());
    for (int stage = share_.first; stage < share_.end; ++stage)
      LONGSPAN_RETURN_IF_ERROR(AddControl(stage));
    for (int stage = 1; stage < launch_.stages; ++stage)
      LONGSPAN_RETURN_IF_ERROR(
          Connect({NodeLine::Kind::kResidual, stage}, stage - 1, "--next", stage, "--previous"));
    if (launch_.ring)
      LONGSPAN_RETURN_IF_ERROR(
          Connect({NodeLine::Kind::kResidual, 0}, launch_.stages - 1, "--next", 0, "--previous"));
    if (launch_.stages > 1)
      LONGSPAN_RETURN_IF_ERROR(
          Connect({NodeLine::Kind::kTokens, 0}, launch_.stages - 1, "--tokens", 0, "--tokens"));
    return std::move(ranks_);
  }

  // The writing end of the step log, where the leader writes it; null where a rank does, or where
  // there is one rank, whose channel is as good.
  std::unique_ptr<comm::JournalWriter> TakeLog() { return std::move(log_); }

 private:
  struct Line {
    NodeLine::Kind kind;
    int stage;
  };

  Inheritance& Rank(int stage) { return ranks_[static_cast<size_t>(stage - share_.first)]; }

  // The end of a line with another node; the nodes have seen to it that it is there.
  comm::FileDescriptor Take(const Line& line) {
    const auto found = lines_.find({launch_.number, line.kind, line.stage});
    LONGSPAN_CHECK(found != lines_.end(), "no line for stage {}", line.stage);
    return std::move(found->second);
  }

  bool leader_is_here() const {
    return !lines_.contains({launch_.number, NodeLine::Kind::kControl, share_.first});
  }

  base::Status AddLog() {
    if (share_.count() == 1) return base::OkStatus();
    std::vector<comm::FileDescriptor> writer;
    for (int stage = share_.first; stage < share_.end; ++stage) {
      LONGSPAN_ASSIGN_OR_RETURN(auto pair, comm::CreateSocketPair());
      writer.push_back(std::move(pair.first));
      Rank(stage).Add("--plans", std::move(pair.second));
    }
    if (leader_is_here()) {
      LONGSPAN_ASSIGN_OR_RETURN(log_, comm::CreateSharedMemoryJournal(std::move(writer)));
    } else {
      Rank(share_.first).Add("--relay", std::move(writer));
    }
    return base::OkStatus();
  }

  base::Status AddControl(int stage) {
    if (lines_.contains({launch_.number, NodeLine::Kind::kControl, stage})) {
      Rank(stage).Add("--leader", Take({NodeLine::Kind::kControl, stage}));
      return base::OkStatus();
    }
    LONGSPAN_ASSIGN_OR_RETURN(auto control, comm::CreateSocketPair());
    LONGSPAN_ASSIGN_OR_RETURN(Rank(stage).channel,
                              comm::CreateSocketChannel(std::move(control.first)));
    Rank(stage).Add("--leader", std::move(control.second));
    return base::OkStatus();
  }

  // Gives both stages an end, where they are here.
  base::Status Connect(const Line& line, int from, const char* from_flag, int to,
                       const char* to_flag) {
    if (share_.Has(from) && share_.Has(to)) {
      LONGSPAN_ASSIGN_OR_RETURN(auto pair, comm::CreateSocketPair());
      Rank(from).Add(from_flag, std::move(pair.first));
      Rank(to).Add(to_flag, std::move(pair.second));
    } else if (share_.Has(from)) {
      Rank(from).Add(from_flag, Take(line));
    } else if (share_.Has(to)) {
      Rank(to).Add(to_flag, Take(line));
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
