#include "comm/socket/socket.h"

#include <utility>

namespace longspan::comm {

base::Result<ChannelPair> CreateSocketChannelPair(ChannelLimits limits) {
  LONGSPAN_ASSIGN_OR_RETURN(auto sockets, CreateSocketPair());
  LONGSPAN_ASSIGN_OR_RETURN(auto first, CreateSocketChannel(std::move(sockets.first), limits));
  LONGSPAN_ASSIGN_OR_RETURN(auto second, CreateSocketChannel(std::move(sockets.second), limits));
  return ChannelPair(std::move(first), std::move(second));
}

base::Result<LinkPair> CreateSocketLinkPair() {
  LONGSPAN_ASSIGN_OR_RETURN(auto sockets, CreateSocketPair());
  LONGSPAN_ASSIGN_OR_RETURN(auto first, CreateSocketLink(std::move(sockets.first)));
  LONGSPAN_ASSIGN_OR_RETURN(auto second, CreateSocketLink(std::move(sockets.second)));
  return LinkPair(std::move(first), std::move(second));
}

}  // namespace longspan::comm
