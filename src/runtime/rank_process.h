// Ranks as processes of this host, started by the program itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/file_descriptor.h"
#include "runtime/rank_handle.h"

namespace longspan::runtime {

struct RankProcessOptions {
  std::string program;                          // an executable file
  std::vector<std::string> arguments;           // after the program's name
  std::vector<comm::FileDescriptor> inherited;  // the child finds them as 3, 4, 5, ...
};

// Starts the process. It is killed when this process dies, and also when the calling thread ends:
// start ranks from a thread that outlives them. `channel` is connected to one of the inherited
// descriptors; null where somebody else has that end. On destruction the channel is closed, which
// tells the rank to end; what is left after two seconds is killed.
base::Result<std::unique_ptr<RankHandle>> StartRankProcess(std::unique_ptr<comm::Channel> channel,
                                                           RankProcessOptions options);

}  // namespace longspan::runtime
