#include "server/http_reader.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"

namespace longspan::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Parser = http::request_parser<http::string_body>;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr int64_t kSlowestBytesPerSecond = 65536;
// A large body leaves a large buffer, which nothing needs while the request is answered.
constexpr size_t kMostBuffer = 65536;

// The bodies in memory leave none for more.
const error_code kNoRoom = asio::error::no_memory;

// The status to refuse with; 0 where nobody is there to read it.
int StatusOf(const error_code& error, bool timed_out) {
  if (timed_out) return 408;
  if (error == kNoRoom) return 503;
  if (error == http::error::end_of_stream || error == asio::error::eof ||
      error == asio::error::operation_aborted || error == http::error::partial_message ||
      error.category() == asio::error::get_system_category())
    return 0;
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit) return 431;
  return 400;
}

std::optional<HttpResponse> RefusalOf(const error_code& error, const ReadContext& context) {
  const int status = StatusOf(error, context.deadline.timed_out());
  switch (status) {
    case 0:
      return std::nullopt;
    case 408:
      return context.handler.Refusal(status, "the request did not come in time");
    case 413:
      return context.handler.Refusal(
          status, fmt::format("the body is larger than the {} bytes that are allowed",
                              context.limits.body_bytes));
    case 431:
      return context.handler.Refusal(
          status, fmt::format("the head is larger than the {} bytes that are allowed",
                              context.limits.header_bytes));
    case 503:
      return context.handler.Refusal(
          status, "the requests at hand take all the memory for them: try again later");
    default:
      return context.handler.Refusal(status, "this is no HTTP request: " + error.message());
  }
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// Cuts "http://host" off a target in absolute form, which any server must take (RFC 9112, 3.2.2);
// the host, which counts more than the header's; nothing where the target is only a path.
std::optional<std::string> CutHost(std::string& target) {
  const size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string::npos) return std::nullopt;
  const std::string name = Lower(target.substr(0, scheme));
  if (name != "http" && name != "https") return std::nullopt;
  const size_t begin = scheme + 3;
  const size_t end = std::min(target.find_first_of("/?", begin), target.size());
  std::string host = target.substr(begin, end - begin);
  target.erase(0, end);
  if (!target.starts_with('/')) target.insert(target.begin(), '/');
  return host;
}

void TakeHead(const Parser& parser, HttpRequest& request, RequestFraming& framing) {
  const auto& head = parser.get();
  framing = {.keep_alive = head.keep_alive(),
             .has_chunks = head.version() >= 11,
             .is_head = head.method() == http::verb::head};
  request.method = std::string(head.method_string());
  std::string target(head.target());
  const std::optional<std::string> host = CutHost(target);
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : head) {
    std::string name = Lower(field.name_string());
    const bool replaced = host && name == "host";
    request.headers.emplace_back(std::move(name), replaced ? *host : std::string(field.value()));
  }
}

// A header that decides what a request is, and that came twice: whoever stands before this server
// may have read the other one. Empty where there is none.
std::string_view TwiceGiven(const HttpRequest& request) {
  static constexpr std::string_view kOnce[] = {"authorization", "content-type", "host",
                                               "transfer-encoding", "x-api-key"};
  for (const std::string_view name : kOnce) {
    const auto count = std::count_if(request.headers.begin(), request.headers.end(),
                                     [&](const auto& header) { return header.first == name; });
    if (count > 1) return name;
  }
  return {};
}

// What the framing of a request has against it, before anybody looks at what it asks for.
std::optional<HttpResponse> RefusalOfHead(const HttpRequest& request, const RequestFraming& framing,
                                          HttpHandler& handler) {
  if (const std::string_view name = TwiceGiven(request); !name.empty())
    return handler.Refusal(400, fmt::format("the header {} came twice", name));
  if (framing.has_chunks && !request.HasHeader("host"))
    return handler.Refusal(400, "a request of HTTP/1.1 needs the header Host");
  const std::string transfer = Lower(request.Header("transfer-encoding"));
  if (!transfer.empty() && !framing.has_chunks)
    return handler.Refusal(400, "a request of HTTP/1.0 has no Transfer-Encoding");
  if (!transfer.empty() && transfer != "chunked")
    return handler.Refusal(
        501, fmt::format("the Transfer-Encoding {} is not supported: only chunked is", transfer));
  const std::string content = Lower(request.Header("content-encoding"));
  if (!content.empty() && content != "identity")
    return handler.Refusal(
        415,
        fmt::format("the Content-Encoding {} is not supported: send the body as it is", content));
  return std::nullopt;
}

// Memory for a body.
class BodyLease {
 public:
  explicit BodyLease(const ReadContext& context)
      : all_(context.body_bytes), limit_(context.limits.all_bodies_bytes) {}
  BodyLease(const BodyLease&) = delete;
  ~BodyLease() { *all_ -= taken_; }

  // False where the others leave no room for a body of that length.
  bool Grow(int64_t length) {
    const int64_t more = std::max<int64_t>(0, length - taken_);
    if (*all_ + more > limit_) return false;
    *all_ += more;
    taken_ += more;
    return true;
  }

 private:
  const std::shared_ptr<std::atomic<int64_t>> all_;
  const int64_t limit_;
  int64_t taken_ = 0;
};

// What has come buys time for more: who sends nothing is left soon, however long the body is to be.
asio::awaitable<error_code> ReadInTime(ReadContext& context, Parser& parser, BodyLease& lease) {
  const auto begin = base::SteadyClock().Now();
  size_t received = 0;
  while (!parser.is_done()) {
    const auto time =
        context.limits.request_time +
        std::chrono::milliseconds(1000 * static_cast<int64_t>(received) / kSlowestBytesPerSecond) -
        (base::SteadyClock().Now() - begin);
    context.deadline.Arm(std::chrono::ceil<std::chrono::milliseconds>(time), context.owner);
    const auto [error, bytes] =
        co_await http::async_read_some(context.socket, context.buffer, parser, kAwait);
    if (error) co_return error;
    received += bytes;
    // Of a body without a length as it comes.
    if (!lease.Grow(static_cast<int64_t>(parser.get().body().size()))) co_return kNoRoom;
  }
  co_return error_code();
}

asio::awaitable<ReadOutcome> ReadBody(ReadContext& context, Parser& parser, HttpRequest& request) {
  if (!parser.is_done()) {
    const auto lease = std::make_shared<BodyLease>(context);
    request.lease = lease;
    const auto known = parser.content_length();
    if (known && !lease->Grow(static_cast<int64_t>(*known)))
      co_return ReadOutcome{.complete = false, .refusal = RefusalOf(kNoRoom, context)};
    if (request.Header("expect") == "100-continue") {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const auto [error, bytes] =
          co_await asio::async_write(context.socket, asio::buffer(kContinue), kAwait);
      if (error) co_return ReadOutcome{};
    }
    if (const error_code error = co_await ReadInTime(context, parser, *lease); error)
      co_return ReadOutcome{.complete = false, .refusal = RefusalOf(error, context)};
  }
  context.deadline.Disarm();
  request.body = std::move(parser.get().body());
  request.body_bytes = static_cast<int64_t>(request.body.size());
  if (context.buffer.capacity() > kMostBuffer) context.buffer.shrink_to_fit();
  co_return ReadOutcome{.complete = true, .refusal = std::nullopt};
}

}  // namespace

asio::awaitable<ReadOutcome> ReadHttpRequest(ReadContext context, HttpRequest& request,
                                             RequestFraming& framing) {
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(context.limits.header_bytes));
  parser.body_limit(static_cast<uint64_t>(context.limits.body_bytes));
  context.deadline.Arm(context.limits.request_time, context.owner);
  const auto [error, bytes] =
      co_await http::async_read_header(context.socket, context.buffer, parser, kAwait);
  if (error) co_return ReadOutcome{.complete = false, .refusal = RefusalOf(error, context)};
  TakeHead(parser, request, framing);
  std::optional<HttpResponse> refusal = RefusalOfHead(request, framing, context.handler);
  if (!refusal) refusal = context.handler.CheckHead(request);
  if (refusal) co_return ReadOutcome{.complete = false, .refusal = std::move(refusal)};
  co_return co_await ReadBody(context, parser, request);
}

}  // namespace longspan::server
