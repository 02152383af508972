// Thousands of streams of one server, read by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace longspan::testing {

// What became of one stream.
struct CrowdStream {
  std::string request;
  std::string received;  // all bytes, framing included
  int events = 0;        // "data: ..." lines
  bool done = false;     // [DONE] was there
  bool ended = false;    // the connection was closed
};

// Raises the limit of open files as far as it goes; false where that is not far enough.
bool RaiseOpenFiles(int64_t needed);

// Sends all requests at once, each on a connection of its own, and reads what comes. A stream that
// is done closes its connection.
class StreamCrowd {
 public:
  StreamCrowd(uint16_t port, std::vector<std::string> requests);
  StreamCrowd(const StreamCrowd&) = delete;
  ~StreamCrowd();

  // How many streams have had an event, are done, and have ended before they were.
  int begun() const { return begun_; }
  int done() const { return done_; }
  int lost() const { return lost_; }
  int64_t events() const { return events_; }
  int64_t comments() const { return comments_; }
  // Waits until all are done or lost, or for that time. Then what came may be looked at.
  const std::vector<CrowdStream>& Finish(std::chrono::seconds timeout);

 private:
  void Open(uint16_t port, size_t stream);
  void Run();
  void Read(size_t stream);
  void Take(CrowdStream& stream, std::string_view bytes);

  int poller_ = -1;
  std::vector<int> sockets_;
  std::vector<CrowdStream> streams_;
  std::atomic<int> begun_{0};
  std::atomic<int> done_{0};
  std::atomic<int> lost_{0};
  std::atomic<int64_t> events_{0};
  std::atomic<int64_t> comments_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace longspan::testing
