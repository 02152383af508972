#include "server/http_response_writer.h"

#include <iterator>

#include <fmt/format.h>

namespace longspan::server {

void HttpResponseWriter::Reset() {
  framing_ = {};
  begun_ = ended_ = false;
  status_ = 0;
}

void HttpResponseWriter::AppendHead(int status, std::string_view content_type,
                                    std::string_view framing) {
  status_ = status;
  out_ += fmt::format("HTTP/1.1 {} {}\r\nServer: longspan\r\nContent-Type: {}\r\n{}", status,
                      ReasonPhrase(status), content_type, framing);
  if (closing_) framing_.keep_alive = false;
  if (!framing_.keep_alive) out_ += "Connection: close\r\n";
  if (framing_.keep_alive && !framing_.has_chunks) out_ += "Connection: keep-alive\r\n";
}

void HttpResponseWriter::Respond(HttpResponse response) {
  if (begun_ || ended_) return;
  AppendHead(response.status, response.content_type,
             fmt::format("Content-Length: {}\r\n", response.body.size()));
  for (const auto& [name, value] : response.headers) out_ += fmt::format("{}: {}\r\n", name, value);
  out_ += "\r\n";
  if (!framing_.is_head) out_ += response.body;
  ended_ = true;
}

void HttpResponseWriter::Begin(std::string_view content_type) {
  if (begun_ || ended_) return;
  begun_ = true;
  if (!framing_.has_chunks) framing_.keep_alive = false;  // its end is the connection's
  AppendHead(200, content_type,
             framing_.has_chunks ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
                                 : "Cache-Control: no-cache\r\n");
  out_ += "\r\n";
}

void HttpResponseWriter::Write(std::string_view piece) {
  if (!begun_ || ended_ || piece.empty()) return;
  if (!framing_.has_chunks) {
    out_ += piece;
    return;
  }
  fmt::format_to(std::back_inserter(out_), "{:x}\r\n", piece.size());
  out_ += piece;
  out_ += "\r\n";
}

void HttpResponseWriter::End() {
  if (!begun_ || ended_) return;
  if (framing_.has_chunks) out_ += "0\r\n\r\n";
  ended_ = true;
}

}  // namespace longspan::server
