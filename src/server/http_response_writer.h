// Responses as the bytes of a connection. Part of the HTTP server; on its I/O thread.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "server/exchange.h"
#include "server/http_reader.h"

namespace longspan::server {

// One response after the other; whoever owns it takes the bytes from `out` and sends them.
class HttpResponseWriter : public ResponseWriter {
 public:
  // `closing`: connections end with the request that they are at.
  explicit HttpResponseWriter(const std::atomic<bool>& closing) : closing_(closing) {}

  // Forgets the response before, for that to the next request.
  void Reset();

  void Respond(HttpResponse response) override;
  void Begin(std::string_view content_type) override;
  void Write(std::string_view piece) override;
  void End() override;

  // What the request said; the writer keeps to it.
  RequestFraming& framing() { return framing_; }
  std::string& out() { return out_; }
  bool begun() const { return begun_; }  // a response that comes in pieces
  bool ended() const { return ended_; }  // nothing will follow what is in `out`
  int status() const { return status_; }

 private:
  void AppendHead(int status, std::string_view content_type, std::string_view framing);

  const std::atomic<bool>& closing_;
  RequestFraming framing_;
  std::string out_;
  bool begun_ = false;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace longspan::server
