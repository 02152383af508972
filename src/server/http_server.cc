#include "server/http_server.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fcntl.h>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "server/http_session.h"

namespace longspan::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// After a failed accept: of descriptors there may be more soon.
constexpr std::chrono::milliseconds kAcceptPause{50};
// Connections beyond the limit that are told so.
constexpr int64_t kTurnedAway = 64;
// How often what waits to be handled goes first before one is beyond the limit.
constexpr int kTurnsForRoom = 3;

constexpr const char* kFull = "the server has as many connections as it may: try again later";

// A session lives until its coroutine has ended.
asio::awaitable<void> Keep(std::shared_ptr<HttpSession> /*session*/, asio::awaitable<void> life) {
  co_await std::move(life);
}

// Programs that we start must not keep connections open.
void CloseOnExec(int descriptor) { fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

class AsioServer : public HttpServer {
 public:
  AsioServer(const HttpLimits& limits, HttpHandler& handler)
      : work_(asio::make_work_guard(io_)), acceptor_(io_), signals_(io_) {
    context_.limits = limits;
    context_.handler = &handler;
  }
  ~AsioServer() override { AsioServer::Stop(); }

  base::Status Bind(const std::string& host, uint16_t port);

  uint16_t port() const override { return port_; }
  base::Status Start() override;
  void OnSignal(const std::vector<int>& signals, std::function<void(int)> callback) override;
  void RunAfter(std::chrono::milliseconds delay, std::function<void()> callback) override;
  void StopAccepting() override;
  int64_t active() const override { return context_.active; }
  int64_t connections() const override { return context_.connections; }
  void Stop() override;

 private:
  asio::awaitable<void> Accept();
  void AwaitSignal();
  // `has_room`: else it is only told that there is none.
  void Serve(std::shared_ptr<HttpSession> session, bool has_room);
  // Whether there is room for another connection, if by closing an idle one.
  bool MakeRoom();
  // False where each has a request under way.
  bool CloseLongestIdle();
  template <typename Condition>
  void CloseSessions(const Condition& condition);

  SessionContext context_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Tcp::acceptor acceptor_;
  asio::signal_set signals_;
  std::function<void(int)> on_signal_;
  std::vector<std::weak_ptr<HttpSession>> sessions_;  // of the I/O thread
  uint16_t port_ = 0;
  std::thread thread_;
};

base::Status AsioServer::Bind(const std::string& host, uint16_t port) {
  error_code error;
  Tcp::resolver resolver(io_);
  const auto addresses = resolver.resolve(
      host, std::to_string(port), Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
  if (error || addresses.empty())
    return base::InvalidArgument("--host {} is no address of this machine: {}", host,
                                 error.message());
  const Tcp::endpoint endpoint = addresses.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) CloseOnExec(acceptor_.native_handle());
  if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return base::Unavailable("cannot listen on {}:{}: {}; choose another --host or --port", host,
                             port, error.message());
  port_ = acceptor_.local_endpoint(error).port();
  return base::OkStatus();
}

base::Status AsioServer::Start() {
  asio::co_spawn(io_, Accept(), asio::detached);
  try {
    thread_ = std::thread([this] {
      base::NameThisThread("http");
      io_.run();
    });
  } catch (const std::system_error& error) {
    return base::ResourceExhausted("cannot start a thread: {}", error.code().message());
  }
  return base::OkStatus();
}

asio::awaitable<void> AsioServer::Accept() {
  asio::steady_timer pause(io_);
  while (acceptor_.is_open()) {
    auto [error, socket] = co_await acceptor_.async_accept(kAwait);
    if (!acceptor_.is_open()) break;
    if (error) {
      base::Log("server").warn("cannot accept a connection: {}", error.message());
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(kAwait);
      continue;
    }
    // What has ended or become idle meanwhile is perhaps not known yet: it waits in the same queue.
    bool has_room = MakeRoom();
    for (int turn = 0; turn < kTurnsForRoom && !has_room; ++turn) {
      co_await asio::post(io_, asio::use_awaitable);
      has_room = MakeRoom();
    }
    const int64_t beyond = context_.connections - context_.limits.connections;
    if (beyond >= kTurnedAway) continue;  // the socket closes
    CloseOnExec(socket.native_handle());
    error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    Serve(MakeHttpSession(std::move(socket), context_), has_room);
  }
}

void AsioServer::Serve(std::shared_ptr<HttpSession> session, bool has_room) {
  if (sessions_.size() > 2 * static_cast<size_t>(context_.connections) + 64)
    std::erase_if(sessions_, [](const auto& other) { return other.expired(); });
  sessions_.push_back(session);
  auto life = has_room ? session->Run() : session->TurnAway(context_.handler->Refusal(503, kFull));
  asio::co_spawn(io_, Keep(std::move(session), std::move(life)), asio::detached);
}

bool AsioServer::MakeRoom() {
  return context_.connections < context_.limits.connections || CloseLongestIdle();
}

bool AsioServer::CloseLongestIdle() {
  std::shared_ptr<HttpSession> longest;
  for (const auto& session : sessions_) {
    auto living = session.lock();
    if (living == nullptr || !living->idle_since()) continue;
    if (longest == nullptr || *living->idle_since() < *longest->idle_since())
      longest = std::move(living);
  }
  if (longest != nullptr) longest->Close();
  return longest != nullptr;
}

void AsioServer::OnSignal(const std::vector<int>& signals, std::function<void(int)> callback) {
  on_signal_ = std::move(callback);
  error_code ignored;
  for (const int signal : signals) signals_.add(signal, ignored);
  AwaitSignal();
}

void AsioServer::AwaitSignal() {
  signals_.async_wait([this](const error_code& error, int signal) {
    if (error) return;
    on_signal_(signal);
    AwaitSignal();
  });
}

void AsioServer::RunAfter(std::chrono::milliseconds delay, std::function<void()> callback) {
  auto timer = std::make_shared<asio::steady_timer>(io_);
  asio::post(io_, [timer, delay, callback = std::move(callback)]() mutable {
    timer->expires_after(delay);
    timer->async_wait([timer, callback = std::move(callback)](const error_code& error) {
      if (!error) callback();
    });
  });
}

template <typename Condition>
void AsioServer::CloseSessions(const Condition& condition) {
  for (const auto& session : sessions_) {
    const auto living = session.lock();
    if (living != nullptr && condition(*living)) living->Close();
  }
}

void AsioServer::StopAccepting() {
  asio::post(io_, [this] {
    context_.closing = true;
    error_code ignored;
    acceptor_.close(ignored);
    CloseSessions([](const HttpSession& session) { return session.idle_since().has_value(); });
  });
}

void AsioServer::Stop() {
  if (!thread_.joinable()) return;
  asio::post(io_, [this] {
    context_.closing = true;
    error_code ignored;
    acceptor_.close(ignored);
    signals_.cancel(ignored);
    CloseSessions([](const HttpSession& /*session*/) { return true; });
    // What the closed sessions still have to do comes before.
    asio::post(io_, [this] { work_.reset(); });
  });
  // Timers of the far future do not hold up the end.
  while (context_.connections > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  io_.stop();
  thread_.join();
}

}  // namespace

base::Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const std::string& host, uint16_t port,
                                                             const HttpLimits& limits,
                                                             HttpHandler& handler) {
  auto server = std::make_unique<AsioServer>(limits, handler);
  LONGSPAN_RETURN_IF_ERROR(server->Bind(host, port));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace longspan::server
