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

// The status to refuse with; 0 where nobody is there to read it.
int StatusOf(const error_code& error, bool timed_out) {
  if (timed_out) return 408;
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
    default:
      return context.handler.Refusal(status, "this is no HTTP request: " + error.message());
  }
}

void TakeHead(const Parser& parser, HttpRequest& request, RequestFraming& framing) {
  const auto& head = parser.get();
  framing = {.keep_alive = head.keep_alive(),
             .has_chunks = head.version() >= 11,
             .is_head = head.method() == http::verb::head};
  request.method = std::string(head.method_string());
  const std::string_view target(head.target().data(), head.target().size());
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  for (const auto& field : head) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers.emplace_back(std::move(name), std::string(field.value()));
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

// Memory for a body of that length; null where too much is taken.
std::shared_ptr<void> Lease(const ReadContext& context, int64_t length) {
  if (*context.body_bytes + length > context.limits.all_bodies_bytes) return nullptr;
  *context.body_bytes += length;
  return {nullptr, [count = context.body_bytes, length](void*) { *count -= length; }};
}

// What has come buys time for more: who sends nothing is left soon, however long the body is to be.
asio::awaitable<error_code> ReadInTime(ReadContext& context, Parser& parser) {
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
  }
  co_return error_code();
}

asio::awaitable<ReadOutcome> ReadBody(ReadContext& context, Parser& parser, HttpRequest& request) {
  if (!parser.is_done()) {
    const auto known = parser.content_length();
    const int64_t length = known ? static_cast<int64_t>(*known) : context.limits.body_bytes;
    request.lease = Lease(context, length);
    if (request.lease.use_count() == 0)
      co_return ReadOutcome{
          .complete = false,
          .refusal = context.handler.Refusal(
              503, "the requests at hand take all the memory for them: try again later")};
    if (request.Header("expect") == "100-continue") {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const auto [error, bytes] =
          co_await asio::async_write(context.socket, asio::buffer(kContinue), kAwait);
      if (error) co_return ReadOutcome{};
    }
    if (const error_code error = co_await ReadInTime(context, parser); error)
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
  if (const std::string_view name = TwiceGiven(request); !name.empty())
    co_return ReadOutcome{
        .complete = false,
        .refusal = context.handler.Refusal(400, fmt::format("the header {} came twice", name))};
  std::optional<HttpResponse> refusal = context.handler.CheckHead(request);
  if (refusal) co_return ReadOutcome{.complete = false, .refusal = std::move(refusal)};
  co_return co_await ReadBody(context, parser, request);
}

}  // namespace longspan::server
