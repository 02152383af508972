// One connection of the server: reads requests, writes responses. Part of http_server.cc.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/http_server.h"

namespace longspan::server {

// What the sessions of a server share. Counts may be read from any thread.
struct SessionContext {
  HttpLimits limits;
  HttpHandler* handler = nullptr;
  std::atomic<int64_t> active{0};
  std::atomic<int64_t> connections{0};
  std::shared_ptr<std::atomic<int64_t>> body_bytes = std::make_shared<std::atomic<int64_t>>(0);
  uint64_t sessions = 0;             // so far; of the I/O thread
  std::atomic<bool> closing{false};  // connections end with the request that they are at
};

// Used on the I/O thread only.
class HttpSession {
 public:
  virtual ~HttpSession() = default;
  // Ends with the connection. The session must be alive until then: keep it in the coroutine.
  virtual boost::asio::awaitable<void> Run() = 0;
  // Ends the connection at once.
  virtual void Close() = 0;
  // Ends it where it only waits for another request.
  virtual void CloseIfIdle() = 0;
};

std::shared_ptr<HttpSession> MakeHttpSession(boost::asio::ip::tcp::socket socket,
                                             SessionContext& context);

}  // namespace longspan::server
