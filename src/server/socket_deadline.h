// Bounds the time of what a socket does. Part of the HTTP server; on its I/O thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace longspan::server {

// When the time is up all operations of the socket end with operation_aborted. The socket must
// outlive it.
class SocketDeadline {
 public:
  explicit SocketDeadline(boost::asio::ip::tcp::socket& socket)
      : socket_(socket), timer_(socket.get_executor()) {}

  // From now on; whoever owns both must stay alive through `owner`, until Disarm or the end.
  template <typename Owner>
  void Arm(std::chrono::milliseconds time, std::shared_ptr<Owner> owner) {
    timed_out_ = false;
    timer_.expires_after(time);
    timer_.async_wait([this, owner = std::move(owner), armed = ++armed_](const auto& error) {
      if (error || armed != armed_) return;
      timed_out_ = true;
      boost::system::error_code ignored;
      socket_.cancel(ignored);
    });
  }
  void Disarm() {
    ++armed_;
    timer_.cancel();
  }
  bool timed_out() const { return timed_out_; }

 private:
  boost::asio::ip::tcp::socket& socket_;
  boost::asio::steady_timer timer_;
  uint64_t armed_ = 0;
  bool timed_out_ = false;
};

}  // namespace longspan::server
