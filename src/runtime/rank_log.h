// The step log of a node, as the leader sees it.
#pragma once

#include <memory>
#include <vector>

#include "comm/journal.h"
#include "runtime/rank_handle.h"

namespace longspan::runtime {

// The ranks of one node, which all read one log: the first handle's SendPlan writes it, or where
// `log` is null sends the plan to the first rank, which writes it there (RankLinks::relay); that of
// the others does nothing. At least one rank.
std::vector<std::unique_ptr<RankHandle>> ShareLog(std::vector<std::unique_ptr<RankHandle>> ranks,
                                                  std::unique_ptr<comm::JournalWriter> log);

}  // namespace longspan::runtime
