#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "server/http_session.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace longspan::testing {
namespace {

namespace asio = boost::asio;
using server::Exchange;
using server::HttpRequest;
using server::HttpResponse;

constexpr server::HttpLimits kLimits = {
    .body_bytes = 2000, .all_bodies_bytes = 4000, .header_bytes = 2000};
constexpr std::chrono::seconds kStuck{5};

class ThreePieces : public server::ResponseSource {
 public:
  void Pull(server::ResponseWriter& writer) override {
    writer.Begin("text/plain");
    for (const char* piece : {"a", "bc", "def"}) writer.Write(piece);
    writer.End();
  }
};

class Handler : public server::HttpHandler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override {
    LONGSPAN_CHECK(!head.method.empty(), "a request without a method");
    LONGSPAN_CHECK(head.body.empty(), "a body before it was asked for");
    for (const auto& [name, value] : head.headers)
      LONGSPAN_CHECK(name.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ \r\n") == std::string::npos &&
                         value.find_first_of("\r\n") == std::string::npos,
                     "the header '{}: {}'", name, value);
    if (head.path == "/no") return HttpResponse{.status = 401, .body = "no"};
    return std::nullopt;
  }
  void Handle(std::shared_ptr<Exchange> exchange) override {
    const HttpRequest& request = exchange->request();
    LONGSPAN_CHECK(request.body_bytes <= kLimits.body_bytes, "{} bytes", request.body_bytes);
    LONGSPAN_CHECK(request.body_bytes == static_cast<int64_t>(request.body.size()), "{} bytes",
                   request.body_bytes);
    ++asked;
    if (request.path == "/stream") return exchange->Attach(std::make_shared<ThreePieces>());
    exchange->Respond({.status = 200, .body = exchange->TakeBody()});
  }
  HttpResponse Refusal(int status, const std::string& message) override {
    LONGSPAN_CHECK(status >= 400 && status < 600, "{}", status);
    return {.status = status, .body = message};
  }
  void OnDone(const HttpRequest& /*request*/, const server::ExchangeSummary& summary) override {
    if (!summary.gone) LONGSPAN_CHECK(summary.status != 0, "an answer without a status");
    ++done;
  }

  int asked = 0;
  int done = 0;
};

// A connection to itself, both ends of which never block.
class Connection {
 public:
  Connection() {
    LONGSPAN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_) == 0,
                   "no socket pair");
  }
  ~Connection() { close(ends_[0]); }

  int server_end() const { return ends_[1]; }
  void Send(FuzzInput bytes) const {
    // What does not fit the server does not take: it has closed.
    (void)!send(ends_[0], bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void ShutdownSend() const { shutdown(ends_[0], SHUT_WR); }
  std::string Receive() const {
    std::string received;
    char bytes[4096];
    for (ssize_t count; (count = recv(ends_[0], bytes, sizeof(bytes), 0)) > 0;)
      received.append(bytes, static_cast<size_t>(count));
    return received;
  }

 private:
  int ends_[2];
};

}  // namespace

void FuzzHttp(FuzzInput input) {
  if (input.empty()) return;
  const size_t piece = input[0] == 0 ? input.size() : input[0];
  input = input.subspan(1);
  Handler handler;
  server::SessionContext context;
  context.limits = kLimits;
  context.handler = &handler;
  asio::io_context io{1};
  const Connection connection;
  bool ended = false;
  {
    // Asio does not look at what kind of socket it is.
    asio::ip::tcp::socket socket(io, asio::ip::tcp::v4(), connection.server_end());
    asio::co_spawn(
        io,
        [&,
         session = server::MakeHttpSession(std::move(socket), context)]() -> asio::awaitable<void> {
          co_await session->Run();
          ended = true;
        },
        asio::detached);
  }
  std::string received;
  while (!input.empty()) {
    const size_t size = std::min(piece, input.size());
    connection.Send(input.first(size));
    input = input.subspan(size);
    io.poll();
    received += connection.Receive();
  }
  connection.ShutdownSend();
  const auto deadline = std::chrono::steady_clock::now() + kStuck;
  while (!ended && std::chrono::steady_clock::now() < deadline) {
    io.run_one_for(std::chrono::milliseconds(100));
    received += connection.Receive();
  }
  LONGSPAN_CHECK(ended, "the connection has ended and its session has not");
  io.poll();
  received += connection.Receive();
  LONGSPAN_CHECK(received.empty() || received.starts_with("HTTP/1.1 "), "{}", received);
  LONGSPAN_CHECK(handler.done >= handler.asked, "{} requests, {} answers", handler.asked,
                 handler.done);
  LONGSPAN_CHECK(context.active == 0 && context.connections == 0 && *context.body_bytes == 0,
                 "{} requests, {} connections, {} bytes are left", context.active,
                 context.connections, *context.body_bytes);
}

}  // namespace longspan::testing
