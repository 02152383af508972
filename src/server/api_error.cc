#include "server/api_error.h"

namespace longspan::server {
namespace {

// OpenAI's names.
std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

// For errors that have no code of their own.
const char* CodeOf(int http_status) {
  switch (http_status) {
    case 400:
      return "invalid_request";
    case 401:
      return "invalid_api_key";
    case 403:
      return "forbidden";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 408:
      return "request_timeout";
    case 413:
      return "request_too_large";
    case 415:
      return "unsupported_media_type";
    case 429:
      return "rate_limit_exceeded";
    case 503:
      return "unavailable";
    default:
      return http_status < 500 ? "invalid_request" : "internal_error";
  }
}

Json OrNull(std::string_view text) {
  return text.empty() ? Json(nullptr) : Json(std::string(text));
}

}  // namespace

Json ErrorJson(int http_status, std::string_view message, std::string_view param,
               std::string_view code) {
  return {{"message", std::string(message)},
          {"type", std::string(TypeOf(http_status))},
          {"param", OrNull(param)},
          {"code", code.empty() ? CodeOf(http_status) : std::string(code)}};
}

HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view param,
                           std::string_view code) {
  HttpResponse response{.status = http_status};
  response.body = Dump({{"error", ErrorJson(http_status, message, param, code)}});
  if (http_status == 429 || http_status == 503) response.headers.emplace_back("Retry-After", "1");
  if (http_status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

int HttpStatusOf(const base::Status& status) {
  switch (status.code()) {
    case base::StatusCode::kInvalidArgument:
    case base::StatusCode::kUnimplemented:
      return 400;
    case base::StatusCode::kNotFound:
      return 404;
    case base::StatusCode::kResourceExhausted:
      return 429;
    case base::StatusCode::kUnavailable:
    case base::StatusCode::kDeadlineExceeded:
    case base::StatusCode::kAborted:
      return 503;
    default:
      return 500;
  }
}

}  // namespace longspan::server
