// `longspan rank`: a stage, started by the program itself.
#include <memory>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/wiring.h"
#include "base/log.h"
#include "runtime/rank.h"
#include "runtime/wire.h"

namespace longspan::apps {

void AddRankCommand(CLI::App& app, Command& selected) {
  CLI::App* command = app.add_subcommand("rank", "a pipeline stage; the program starts it itself");
  command->group("");  // not listed
  auto descriptors = std::make_shared<RankDescriptors>();
  command->add_option("--leader", descriptors->leader)->required();
  command->add_option("--previous", descriptors->previous);
  command->add_option("--next", descriptors->next);
  command->add_option("--tokens", descriptors->tokens);
  command->add_option("--stage-peers", descriptors->stage_peers)->delimiter(',');
  command->add_option("--plans", descriptors->plans);
  command->add_option("--relay", descriptors->relay)->delimiter(',');
  auto host = std::make_shared<runtime::RankHost>();
  command->add_option("--model-dir", host->model_dir);
  command->add_option("--threads", host->threads);
  command->add_option("--cores", host->cores)->delimiter(',');
  command->callback([&selected, descriptors, host] {
    selected = [descriptors, host]() -> CommandResult {
      runtime::RankLinks links;
      base::Status status = ConnectRank(*descriptors, links);
      // Started by hand.
      if (status.code() == base::StatusCode::kInvalidArgument) return status;
      // What fails is told to the leader, which tells the user; here it is for those who debug.
      if (status.ok()) {
        status = runtime::RunRank(links, FindBackend, *host, ConnectPeers);
      } else if (links.leader != nullptr) {
        (void)links.leader->Send(runtime::EncodeFailure(status));
      }
      if (!status.ok()) base::Log("runtime").debug("the rank ends: {}", status.message());
      return {};
    };
  });
}

}  // namespace longspan::apps
