// HTTP/1.1 over TCP (RFC 9112), on one I/O thread. Encryption is a proxy's part.
//
// Connections are kept and may pipeline requests, which are answered in order. A client that closes
// its connection, or its sending half of it, while its answer is being made has gone away.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/exchange.h"

namespace longspan::server {

struct HttpLimits {
  int64_t body_bytes = int64_t{64} << 20;
  int64_t all_bodies_bytes = int64_t{1} << 30;  // that are read or wait to be parsed
  int64_t header_bytes = int64_t{64} << 10;
  // At so many the one that has been without a request for longest makes room for another; where
  // all have one under way, the other is answered with 503.
  int64_t connections = 4096;
  // To send the head of a request, and as long again for its body and a second for every 64 KiB of
  // it that have come.
  std::chrono::seconds request_time{60};
  std::chrono::seconds idle_time{75};    // between requests; before the first: request_time at most
  std::chrono::seconds write_time{120};  // without a byte that a client takes of its answer
  // At most, of a response that has begun, before it is told; 0: never.
  std::chrono::milliseconds silence{10000};
};

// How an exchange went, for the log.
struct ExchangeSummary {
  int status = 0;  // 0: the client went away before there was one
  int64_t response_bytes = 0;
  double seconds = 0;
  bool gone = false;
};

// All calls on the I/O thread: none may block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // The head of a request is there, its body not yet: a response refuses it.
  virtual std::optional<HttpResponse> CheckHead(const HttpRequest& head) = 0;
  virtual void Handle(std::shared_ptr<Exchange> exchange) = 0;
  // The response to what could not be read as a request.
  virtual HttpResponse Refusal(int status, const std::string& message) = 0;
  virtual void OnDone(const HttpRequest& request, const ExchangeSummary& summary) = 0;
};

class HttpServer {
 public:
  // Binds; port 0 takes a free one. The handler must outlive the server.
  static base::Result<std::unique_ptr<HttpServer>> Listen(const std::string& host, uint16_t port,
                                                          const HttpLimits& limits,
                                                          HttpHandler& handler);
  // Stops.
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  // Starts the I/O thread, and with it to accept.
  virtual base::Status Start() = 0;
  // Calls back on the I/O thread, for every signal of these that comes from now on.
  virtual void OnSignal(const std::vector<int>& signals, std::function<void(int)> callback) = 0;
  // Calls back on the I/O thread, unless the server is stopped before.
  virtual void RunAfter(std::chrono::milliseconds delay, std::function<void()> callback) = 0;
  // New connections are refused; what is being answered goes on. Any thread.
  virtual void StopAccepting() = 0;
  // Requests that are being read, from their first byte on, or answered. Any thread.
  virtual int64_t active() const = 0;
  virtual int64_t connections() const = 0;
  // Ends all connections, waits for the I/O thread. Not on that thread.
  virtual void Stop() = 0;
};

}  // namespace longspan::server
