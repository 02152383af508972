// One connection of the server: reads requests, writes responses. Part of http_server.cc.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
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
  // The same in place of Run: says no more than this.
  virtual boost::asio::awaitable<void> TurnAway(HttpResponse response) = 0;
  // Ends the connection at once.
  virtual void Close() = 0;
  // Since when it has only waited for a request, of which nothing has come; nothing where one is
  // read or answered.
  virtual std::optional<std::chrono::steady_clock::time_point> idle_since() const = 0;
};

std::shared_ptr<HttpSession> MakeHttpSession(boost::asio::ip::tcp::socket socket,
                                             SessionContext& context);

}  // namespace longspan::server
