// Channels and links over a connected stream socket: AF_UNIX between processes of one host, TCP
// between hosts.
//
// Each end has two threads of its own, which sleep unless there is something to move. Killing the
// peer process ends its connections, and this end learns it at once. Both ends must be of the same
// build: the wire form (comm/wire.h) is checked, and what does not fit is DataLoss.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/channel.h"
#include "comm/file_descriptor.h"
#include "comm/link.h"
#include "comm/stream_socket.h"

namespace longspan::comm {

// A channel over a connected stream socket that nothing else reads or writes. Takes the socket over
// and makes it blocking and closed on exec. InvalidArgument when it is not a stream socket,
// Unavailable when it is not connected.
base::Result<std::unique_ptr<Channel>> CreateSocketChannel(FileDescriptor socket,
                                                           ChannelLimits limits = {});

// Likewise a link.
base::Result<std::unique_ptr<Link>> CreateSocketLink(FileDescriptor socket);

// Two ends in this process, for tests.
base::Result<ChannelPair> CreateSocketChannelPair(ChannelLimits limits = {});
base::Result<LinkPair> CreateSocketLinkPair();

}  // namespace longspan::comm
