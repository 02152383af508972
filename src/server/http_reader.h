// Reads one request from a connection. Part of the HTTP server; on its I/O thread.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http_server.h"
#include "server/socket_deadline.h"

namespace longspan::server {

// What a request says of its connection.
struct RequestFraming {
  bool keep_alive = false;
  bool has_chunks = true;  // the client knows chunked bodies: HTTP/1.1
  bool is_head = false;
};

// Parts of a session that reading uses; they must outlive it, which `owner` sees to.
struct ReadContext {
  boost::asio::ip::tcp::socket& socket;
  boost::beast::flat_buffer& buffer;  // what was read beyond a request stays in it
  SocketDeadline& deadline;
  const HttpLimits& limits;
  HttpHandler& handler;
  std::shared_ptr<std::atomic<int64_t>> body_bytes;  // of all bodies in memory
  std::shared_ptr<void> owner;
};

struct ReadOutcome {
  bool complete = false;  // the request is there
  // Else what to answer before the connection ends; nothing where nobody is there to read it.
  std::optional<HttpResponse> refusal;
};

// Fills `request` and `framing`, as far as they have come.
boost::asio::awaitable<ReadOutcome> ReadHttpRequest(ReadContext context, HttpRequest& request,
                                                    RequestFraming& framing);

}  // namespace longspan::server
