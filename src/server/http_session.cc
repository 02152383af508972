#include "server/http_session.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "server/http_reader.h"
#include "server/socket_deadline.h"

namespace longspan::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16384;
// What a client may send ahead while it is being answered; it is watched only that far.
constexpr size_t kMostReadAhead = 65536;
// For what a refused client still sends: closing before it is read would lose the refusal.
constexpr std::chrono::seconds kLinger{2};

// After how long a stream is told that it is silent: up to a quarter earlier than the limit, each
// connection at another time. Thousands that began together would else hold up everybody together.
std::chrono::milliseconds SilenceOf(const HttpLimits& limits, uint64_t session) {
  constexpr double kGoldenRatio = 0.618033988749895;
  const double turn = static_cast<double>(session) * kGoldenRatio;
  return std::chrono::ceil<std::chrono::milliseconds>(limits.silence *
                                                      (1 - (turn - std::floor(turn)) / 4));
}

class Session;

// Keeps its session alive until it is answered.
class SessionExchange : public Exchange, public std::enable_shared_from_this<SessionExchange> {
 public:
  SessionExchange(HttpRequest request, std::shared_ptr<Session> session,
                  asio::any_io_executor executor)
      : Exchange(std::move(request)),
        session_(std::move(session)),
        executor_(std::move(executor)) {}

  void Respond(HttpResponse response) override;
  void Attach(std::shared_ptr<ResponseSource> source) override;
  void Wake() override;
  bool gone() const override { return gone_.load(); }

  // On the I/O thread.
  void Pull();
  void Silence();
  void MarkGone();
  void Detach();

 private:
  std::shared_ptr<Session> session_;  // of the I/O thread; null when it is over
  asio::any_io_executor executor_;
  std::shared_ptr<ResponseSource> source_;  // of the I/O thread
  std::atomic<bool> wake_pending_{false};
  std::atomic<bool> gone_{false};
};

class Session : public HttpSession,
                public ResponseWriter,
                public std::enable_shared_from_this<Session> {
 public:
  Session(Tcp::socket socket, SessionContext& context)
      : context_(context),
        socket_(std::move(socket)),
        changed_(socket_.get_executor()),
        deadline_(socket_),
        silence_(SilenceOf(context.limits, ++context.sessions)) {
    ++context_.connections;
  }
  ~Session() override { --context_.connections; }

  asio::awaitable<void> Run() override;
  void Close() override {
    gone_ = true;
    error_code ignored;
    socket_.close(ignored);
    changed_.cancel();
  }
  void CloseIfIdle() override {
    if (idle_) Close();
  }

  void Respond(HttpResponse response) override;
  void Begin(std::string_view content_type) override;
  void Write(std::string_view piece) override;
  void End() override;

 private:
  asio::awaitable<bool> Serve();
  asio::awaitable<bool> ReadRequest(HttpRequest& request);
  asio::awaitable<void> Refuse(const HttpRequest& request, HttpResponse response);
  asio::awaitable<bool> Answer(SessionExchange& exchange);
  asio::awaitable<bool> WriteOut();
  asio::awaitable<void> Linger();
  asio::awaitable<void> EndWatch();

  void Watch();
  void AppendHead(int status, std::string_view content_type, std::string_view framing);

  SessionContext& context_;
  Tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  asio::steady_timer changed_;  // cancelled when the answer has got further or the client is gone
  SocketDeadline deadline_;
  const std::chrono::milliseconds silence_;
  asio::cancellation_signal end_watch_;
  bool watching_ = false;
  bool gone_ = false;
  bool idle_ = false;
  // Of the request at hand.
  RequestFraming framing_;
  bool begun_ = false;
  bool ended_ = false;
  int status_ = 0;
  int64_t sent_ = 0;
  std::string out_;
};

// --- SessionExchange ---------------------------------------------------------------------------

void SessionExchange::Respond(HttpResponse response) {
  asio::post(executor_, [self = shared_from_this(), response = std::move(response)]() mutable {
    if (self->session_ != nullptr) self->session_->Respond(std::move(response));
  });
}

void SessionExchange::Attach(std::shared_ptr<ResponseSource> source) {
  asio::post(executor_, [self = shared_from_this(), source = std::move(source)]() mutable {
    if (self->session_ == nullptr || self->gone()) return source->OnGone();
    self->source_ = std::move(source);
    self->Pull();
  });
}

void SessionExchange::Wake() {
  if (wake_pending_.exchange(true)) return;
  asio::post(executor_, [self = shared_from_this()] {
    self->wake_pending_.store(false);
    self->Pull();
  });
}

void SessionExchange::Pull() {
  if (session_ != nullptr && source_ != nullptr && !gone()) source_->Pull(*session_);
}

void SessionExchange::Silence() {
  if (source_ != nullptr) source_->OnSilence(*session_);
}

void SessionExchange::MarkGone() {
  gone_.store(true);
  if (source_ != nullptr) source_->OnGone();
}

void SessionExchange::Detach() {
  session_.reset();
  source_.reset();
}

// --- Session -----------------------------------------------------------------------------------

asio::awaitable<void> Session::Run() {
  while (co_await Serve()) {
  }
  deadline_.Disarm();
  error_code ignored;
  socket_.shutdown(Tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

// One request and its answer; false when the connection is over.
asio::awaitable<bool> Session::Serve() {
  HttpRequest request;
  if (!co_await ReadRequest(request)) co_return false;
  ++context_.active;
  const auto begin = base::SteadyClock().Now();
  auto exchange = std::make_shared<SessionExchange>(std::move(request), shared_from_this(),
                                                    socket_.get_executor());
  Watch();
  context_.handler->Handle(exchange);
  const bool complete = co_await Answer(*exchange);
  exchange->Detach();
  --context_.active;
  context_.handler->OnDone(exchange->request(),
                           {.status = status_,
                            .response_bytes = sent_,
                            .seconds = base::Seconds(base::SteadyClock().Now() - begin),
                            .gone = !complete});
  co_await EndWatch();
  co_return complete&& framing_.keep_alive && !gone_ && !context_.closing;
}

asio::awaitable<bool> Session::ReadRequest(HttpRequest& request) {
  framing_ = {};
  begun_ = ended_ = false;
  status_ = 0;
  sent_ = 0;
  if (buffer_.size() == 0) {
    // The time between requests is not that for sending one.
    if (context_.closing) co_return false;
    idle_ = true;
    deadline_.Arm(context_.limits.idle_time, shared_from_this());
    const auto [error] = co_await socket_.async_wait(Tcp::socket::wait_read, kAwait);
    idle_ = false;
    if (error) co_return false;
  }
  ReadContext read{.socket = socket_,
                   .buffer = buffer_,
                   .deadline = deadline_,
                   .limits = context_.limits,
                   .handler = *context_.handler,
                   .body_bytes = context_.body_bytes,
                   .owner = shared_from_this()};
  ReadOutcome outcome = co_await ReadHttpRequest(std::move(read), request, framing_);
  if (outcome.refusal) co_await Refuse(request, std::move(*outcome.refusal));
  co_return outcome.complete;
}

asio::awaitable<void> Session::Refuse(const HttpRequest& request, HttpResponse response) {
  framing_.keep_alive = false;
  const int status = response.status;
  Respond(std::move(response));
  const bool written = co_await WriteOut();
  context_.handler->OnDone(request, {.status = status, .response_bytes = sent_, .gone = !written});
  if (written) co_await Linger();
}

asio::awaitable<void> Session::Linger() {
  error_code ignored;
  socket_.shutdown(Tcp::socket::shutdown_send, ignored);
  deadline_.Arm(kLinger, shared_from_this());
  std::string dropped(kReadBytes, '\0');
  while (!deadline_.timed_out()) {
    const auto [error, bytes] = co_await socket_.async_read_some(asio::buffer(dropped), kAwait);
    if (error) break;
  }
}

// False when the client went away before the end.
asio::awaitable<bool> Session::Answer(SessionExchange& exchange) {
  while (true) {
    // What is complete is written to whoever only ended its own half of the connection.
    if (!out_.empty() && (!gone_ || ended_)) {
      if (!co_await WriteOut()) break;
      continue;
    }
    if (ended_) co_return true;
    if (gone_) break;
    const bool tells = begun_ && silence_.count() > 0;
    if (tells) {
      changed_.expires_after(silence_);
    } else {
      changed_.expires_at(asio::steady_timer::time_point::max());
    }
    const auto [error] = co_await changed_.async_wait(kAwait);
    if (!error && tells && !gone_ && !ended_ && out_.empty()) exchange.Silence();
  }
  gone_ = true;
  exchange.MarkGone();
  co_return false;
}

asio::awaitable<bool> Session::WriteOut() {
  std::string bytes;
  bytes.swap(out_);
  error_code failed;
  for (size_t sent = 0; sent < bytes.size() && !failed;) {
    deadline_.Arm(context_.limits.write_time, shared_from_this());
    const auto [error, written] =
        co_await socket_.async_write_some(asio::buffer(bytes) + sent, kAwait);
    failed = error;
    sent += written;
    sent_ += static_cast<int64_t>(written);
  }
  deadline_.Disarm();
  if (!failed && out_.empty() && bytes.capacity() <= kMostReadAhead) {
    // Its memory serves the next piece.
    bytes.clear();
    out_.swap(bytes);
  }
  co_return !failed;
}

// Reads on while a request is answered, to see the client go.
void Session::Watch() {
  if (watching_ || gone_ || buffer_.size() >= kMostReadAhead) return;
  watching_ = true;
  socket_.async_read_some(
      buffer_.prepare(4096),
      asio::bind_cancellation_slot(
          end_watch_.slot(), [self = shared_from_this(), this](const error_code& error, size_t n) {
            watching_ = false;
            if (!error) {
              buffer_.commit(n);
              if (!ended_) Watch();
            } else if (error != asio::error::operation_aborted || !socket_.is_open() ||
                       deadline_.timed_out()) {
              gone_ = true;
            }
            changed_.cancel();
          }));
}

asio::awaitable<void> Session::EndWatch() {
  while (watching_) {
    end_watch_.emit(asio::cancellation_type::terminal);
    changed_.expires_at(asio::steady_timer::time_point::max());
    if (watching_) co_await changed_.async_wait(kAwait);
  }
}

void Session::AppendHead(int status, std::string_view content_type, std::string_view framing) {
  status_ = status;
  out_ += fmt::format("HTTP/1.1 {} {}\r\nServer: longspan\r\nContent-Type: {}\r\n{}", status,
                      ReasonPhrase(status), content_type, framing);
  if (context_.closing) framing_.keep_alive = false;
  if (!framing_.keep_alive) out_ += "Connection: close\r\n";
  if (framing_.keep_alive && !framing_.has_chunks) out_ += "Connection: keep-alive\r\n";
}

void Session::Respond(HttpResponse response) {
  if (begun_ || ended_) return;
  AppendHead(response.status, response.content_type,
             fmt::format("Content-Length: {}\r\n", response.body.size()));
  for (const auto& [name, value] : response.headers) out_ += fmt::format("{}: {}\r\n", name, value);
  out_ += "\r\n";
  if (!framing_.is_head) out_ += response.body;
  ended_ = true;
  changed_.cancel();
}

void Session::Begin(std::string_view content_type) {
  if (begun_ || ended_) return;
  begun_ = true;
  if (!framing_.has_chunks) framing_.keep_alive = false;  // its end is the connection's
  AppendHead(200, content_type,
             framing_.has_chunks ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
                                 : "Cache-Control: no-cache\r\n");
  out_ += "\r\n";
  changed_.cancel();
}

void Session::Write(std::string_view piece) {
  if (!begun_ || ended_ || piece.empty()) return;
  if (framing_.has_chunks) {
    fmt::format_to(std::back_inserter(out_), "{:x}\r\n", piece.size());
    out_ += piece;
    out_ += "\r\n";
  } else {
    out_ += piece;
  }
  changed_.cancel();
}

void Session::End() {
  if (!begun_ || ended_) return;
  if (framing_.has_chunks) out_ += "0\r\n\r\n";
  ended_ = true;
  changed_.cancel();
}

}  // namespace

std::shared_ptr<HttpSession> MakeHttpSession(Tcp::socket socket, SessionContext& context) {
  return std::make_shared<Session>(std::move(socket), context);
}

}  // namespace longspan::server
