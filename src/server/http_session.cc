#include "server/http_session.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
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
#include "server/http_exchange.h"
#include "server/http_reader.h"
#include "server/http_response_writer.h"
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

// From the first byte of a request on: who stops the server waits for these.
class ActiveRequest {
 public:
  explicit ActiveRequest(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ActiveRequest(const ActiveRequest&) = delete;
  ~ActiveRequest() { --count_; }

 private:
  std::atomic<int64_t>& count_;
};

class Session : public HttpSession,
                public ResponseOutput,
                public std::enable_shared_from_this<Session> {
 public:
  Session(Tcp::socket socket, SessionContext& context)
      : context_(context),
        socket_(std::move(socket)),
        writer_(context.closing),
        changed_(socket_.get_executor()),
        deadline_(socket_),
        silence_(SilenceOf(context.limits, ++context.sessions)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    ++context_.connections;
  }
  ~Session() override { --context_.connections; }

  asio::awaitable<void> Run() override;
  asio::awaitable<void> TurnAway(HttpResponse response) override;
  void Close() override {
    gone_ = true;
    error_code ignored;
    socket_.close(ignored);
    changed_.cancel();
  }
  std::optional<std::chrono::steady_clock::time_point> idle_since() const override {
    if (gone_ || !idle_since_ || Available()) return std::nullopt;
    return idle_since_;
  }

  ResponseWriter& writer() override { return writer_; }
  // As much as the socket takes at once from here, which costs a token no turn of the coroutine and
  // no timer, and the rest from there.
  void Flush() override;

 private:
  asio::awaitable<bool> Serve();
  asio::awaitable<bool> AwaitRequest();
  asio::awaitable<bool> ReadRequest(HttpRequest& request);
  asio::awaitable<void> Refuse(const HttpRequest& request, HttpResponse response);
  asio::awaitable<bool> Answer(SessionExchange& exchange);
  asio::awaitable<bool> WriteOut();
  asio::awaitable<void> Linger();
  asio::awaitable<void> EndWatch();

  // Who has sent nothing yet has connected to send something.
  std::chrono::seconds IdleTime() const {
    const HttpLimits& limits = context_.limits;
    return has_served_ ? limits.idle_time : std::min(limits.idle_time, limits.request_time);
  }
  // Something of a request is there.
  bool Available() const {
    error_code ignored;
    return buffer_.size() > 0 || socket_.available(ignored) > 0;
  }
  void Watch();
  void WriteNow();
  void ShutDown();

  SessionContext& context_;
  Tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  HttpResponseWriter writer_;
  asio::steady_timer changed_;  // cancelled when the answer has got further or the client is gone
  SocketDeadline deadline_;
  const std::chrono::milliseconds silence_;
  asio::cancellation_signal end_watch_;
  bool watching_ = false;
  bool gone_ = false;
  bool has_served_ = false;
  std::optional<std::chrono::steady_clock::time_point> idle_since_;
  // Of the response at hand.
  int64_t sent_ = 0;
  bool writing_ = false;                 // the coroutine is
  bool awaits_silence_ = false;          // the coroutine does
  asio::steady_timer::time_point sign_;  // of life, the last one
};

asio::awaitable<void> Session::Run() {
  // Not awaited in a condition: g++ 12 loses its place in a loop of two of those.
  bool open = co_await AwaitRequest();
  while (open) {
    open = co_await Serve();
    has_served_ = true;
    if (open) open = co_await AwaitRequest();
  }
  ShutDown();
}

asio::awaitable<void> Session::TurnAway(HttpResponse response) {
  const HttpRequest unread;
  co_await Refuse(unread, std::move(response));
  ShutDown();
}

void Session::ShutDown() {
  deadline_.Disarm();
  error_code ignored;
  socket_.shutdown(Tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

// Until the first byte of a request is there; false when none will come.
asio::awaitable<bool> Session::AwaitRequest() {
  bool begins = buffer_.size() > 0;
  if (!begins && (!context_.closing || Available())) {
    idle_since_ = std::chrono::steady_clock::now();
    deadline_.Arm(IdleTime(), shared_from_this());
    const auto [error] = co_await socket_.async_wait(Tcp::socket::wait_read, kAwait);
    idle_since_.reset();
    begins = !error;
  }
  co_return begins;
}

// One request and its answer; false when the connection is over.
asio::awaitable<bool> Session::Serve() {
  const ActiveRequest active(context_.active);
  HttpRequest request;
  if (!co_await ReadRequest(request)) co_return false;
  const auto begin = base::SteadyClock().Now();
  auto exchange = std::make_shared<SessionExchange>(std::move(request), shared_from_this(),
                                                    socket_.get_executor());
  Watch();
  context_.handler->Handle(exchange);
  const bool complete = co_await Answer(*exchange);
  exchange->Detach();
  context_.handler->OnDone(exchange->request(),
                           {.status = writer_.status(),
                            .response_bytes = sent_,
                            .seconds = base::Seconds(base::SteadyClock().Now() - begin),
                            .gone = !complete});
  co_await EndWatch();
  co_return complete&& writer_.framing().keep_alive && !gone_ && !context_.closing;
}

asio::awaitable<bool> Session::ReadRequest(HttpRequest& request) {
  writer_.Reset();
  sent_ = 0;
  ReadContext read{.socket = socket_,
                   .buffer = buffer_,
                   .deadline = deadline_,
                   .limits = context_.limits,
                   .handler = *context_.handler,
                   .body_bytes = context_.body_bytes,
                   .owner = shared_from_this()};
  ReadOutcome outcome = co_await ReadHttpRequest(std::move(read), request, writer_.framing());
  if (outcome.refusal) co_await Refuse(request, std::move(*outcome.refusal));
  co_return outcome.complete;
}

asio::awaitable<void> Session::Refuse(const HttpRequest& request, HttpResponse response) {
  writer_.framing().keep_alive = false;
  const int status = response.status;
  writer_.Respond(std::move(response));
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
    if (!writer_.out().empty() && (!gone_ || writer_.ended())) {
      if (!co_await WriteOut()) break;
      continue;
    }
    if (writer_.ended()) co_return true;
    if (gone_) break;
    awaits_silence_ = writer_.begun() && silence_.count() > 0;
    changed_.expires_at(awaits_silence_ ? sign_ + silence_ : asio::steady_timer::time_point::max());
    const auto [error] = co_await changed_.async_wait(kAwait);
    const auto now = std::chrono::steady_clock::now();
    if (error || !awaits_silence_ || now < sign_ + silence_) continue;
    sign_ = now;
    exchange.Silence();
  }
  gone_ = true;
  exchange.MarkGone();
  co_return false;
}

void Session::Flush() {
  if (writing_) return;
  if (!gone_) WriteNow();
  const bool begins = writer_.begun() && !awaits_silence_ && silence_.count() > 0;
  if (begins || gone_ || writer_.ended() || !writer_.out().empty()) changed_.cancel();
}

void Session::WriteNow() {
  std::string& out = writer_.out();
  if (out.empty()) return;
  error_code error;
  const size_t written = socket_.write_some(asio::buffer(out), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return;
  gone_ = static_cast<bool>(error);
  sent_ += static_cast<int64_t>(written);
  sign_ = std::chrono::steady_clock::now();
  // The memory of small pieces serves the next one.
  if (written == out.size() && out.capacity() > kMostReadAhead) {
    out = {};
  } else {
    out.erase(0, written);
  }
}

asio::awaitable<bool> Session::WriteOut() {
  std::string bytes;
  bytes.swap(writer_.out());
  error_code failed;
  writing_ = true;
  for (size_t sent = 0; sent < bytes.size() && !failed;) {
    deadline_.Arm(context_.limits.write_time, shared_from_this());
    const auto [error, written] =
        co_await socket_.async_write_some(asio::buffer(bytes) + sent, kAwait);
    failed = error;
    sent += written;
    sent_ += static_cast<int64_t>(written);
  }
  writing_ = false;
  deadline_.Disarm();
  sign_ = std::chrono::steady_clock::now();
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
              if (!writer_.ended()) Watch();
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

}  // namespace

std::shared_ptr<HttpSession> MakeHttpSession(Tcp::socket socket, SessionContext& context) {
  return std::make_shared<Session>(std::move(socket), context);
}

}  // namespace longspan::server
