// One request and its answer, as the endpoints see them: no socket, no HTTP library.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace longspan::server {

// Where a response is written to; on the I/O thread only, and never blocking.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // The whole response. Nothing may follow.
  virtual void Respond(HttpResponse response) = 0;
  // Begins a response of status 200 that comes in pieces; then Write as often as it takes, and End.
  virtual void Begin(std::string_view content_type) = 0;
  virtual void Write(std::string_view piece) = 0;
  virtual void End() = 0;
};

// Makes a response as its content comes; on the I/O thread only.
class ResponseSource {
 public:
  virtual ~ResponseSource() = default;
  // Somebody called Exchange::Wake: writes what there is.
  virtual void Pull(ResponseWriter& writer) = 0;
  // A response that has begun has been silent for a while.
  virtual void OnSilence(ResponseWriter& /*writer*/) {}
  // The client went away before the end; nothing is pulled any more.
  virtual void OnGone() {}
};

// Handed out as shared pointers. All calls from any thread but where they say otherwise.
class Exchange {
 public:
  virtual ~Exchange() = default;

  const HttpRequest& request() const { return request_; }
  // Of one thread at a time; leaves the request without its body. Its memory counts against the
  // server's limit as long as the lease is held.
  std::string TakeBody() { return std::move(request_.body); }
  std::shared_ptr<void> TakeLease() { return std::move(request_.lease); }

  // The whole response. Once, and not beside Attach.
  virtual void Respond(HttpResponse response) = 0;
  // Answers with what the source makes. Once. The source is asked at once, then after every Wake.
  virtual void Attach(std::shared_ptr<ResponseSource> source) = 0;
  virtual void Wake() = 0;
  // The client went away: work for it is in vain.
  virtual bool gone() const = 0;

 protected:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}

 private:
  HttpRequest request_;
};

}  // namespace longspan::server
