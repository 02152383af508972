// A server on real sockets, with a handler of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/http_server.h"

namespace longspan::server {

// Streams "tick" until it is told to end or the client is gone.
class Ticks : public ResponseSource {
 public:
  void Pull(ResponseWriter& writer) override {
    if (!begun_) writer.Begin("text/plain");
    begun_ = true;
    if (end) {
      writer.Write("end");
      return writer.End();
    }
    writer.Write("tick");
  }
  void OnSilence(ResponseWriter& writer) override { writer.Write("silence"); }
  void OnGone() override { gone = true; }

  std::atomic<bool> end{false};
  std::atomic<bool> gone{false};

 private:
  bool begun_ = false;
};

class EchoHandler : public HttpHandler {
 public:
  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override {
    if (head.path == "/forbidden") return HttpResponse{.status = 401, .body = "no"};
    return std::nullopt;
  }
  void Handle(std::shared_ptr<Exchange> exchange) override {
    const HttpRequest& request = exchange->request();
    if (request.path == "/stream" || request.path == "/wait") {
      const std::lock_guard lock(mutex_);
      streams_.emplace_back(exchange, std::make_shared<Ticks>());
      if (request.path == "/stream") exchange->Attach(streams_.back().second);
      added_.notify_all();
      return;
    }
    if (request.path == "/host")
      return exchange->Respond({.status = 200, .body = std::string(request.Header("host"))});
    exchange->Respond({.status = 200,
                       .body = request.method + " " + request.path + "?" + request.query + " " +
                               exchange->TakeBody(),
                       .content_type = "text/plain"});
  }
  HttpResponse Refusal(int status, const std::string& message) override {
    return {.status = status, .body = message};
  }
  void OnDone(const HttpRequest& /*request*/, const ExchangeSummary& summary) override {
    ++done;
    if (summary.gone) ++gone;
  }

  std::pair<std::shared_ptr<Exchange>, std::shared_ptr<Ticks>> NextStream() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !streams_.empty(); });
    auto stream = streams_.front();
    streams_.erase(streams_.begin());
    return stream;
  }

  std::atomic<int> done{0};
  std::atomic<int> gone{0};

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::pair<std::shared_ptr<Exchange>, std::shared_ptr<Ticks>>> streams_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void StartServer(const HttpLimits& limits = {}) {
    auto server = HttpServer::Listen("127.0.0.1", 0, limits, handler_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    ASSERT_TRUE(server_->Start().ok());
  }
  template <typename Condition>
  static bool Becomes(const Condition& condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace longspan::server
