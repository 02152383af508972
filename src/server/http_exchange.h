// A request of a connection, as its handler has it. Part of the HTTP server.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <utility>

#include "server/exchange.h"

namespace longspan::server {

// Where a response goes; on the I/O thread.
class ResponseOutput {
 public:
  virtual ~ResponseOutput() = default;
  virtual ResponseWriter& writer() = 0;
  // Sends what has been written.
  virtual void Flush() = 0;
};

// Keeps its session alive until it is answered. All calls on the I/O thread, but those of Exchange.
class SessionExchange : public Exchange, public std::enable_shared_from_this<SessionExchange> {
 public:
  SessionExchange(HttpRequest request, std::shared_ptr<ResponseOutput> session,
                  boost::asio::any_io_executor executor)
      : Exchange(std::move(request)),
        session_(std::move(session)),
        executor_(std::move(executor)) {}

  void Respond(HttpResponse response) override;
  void Attach(std::shared_ptr<ResponseSource> source) override;
  void Wake() override;
  bool gone() const override { return gone_.load(); }

  // Writes what there is.
  void Pull();
  void Silence();
  void MarkGone();
  // It is answered, or never will be.
  void Detach();

 private:
  std::shared_ptr<ResponseOutput> session_;  // of the I/O thread; null when it is over
  boost::asio::any_io_executor executor_;
  std::shared_ptr<ResponseSource> source_;  // of the I/O thread
  std::atomic<bool> wake_pending_{false};
  std::atomic<bool> gone_{false};
};

}  // namespace longspan::server
