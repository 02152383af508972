#include "tests/load/stream_crowd.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <string_view>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace longspan::testing {

bool RaiseOpenFiles(int64_t needed) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max >= static_cast<rlim_t>(needed);
}

StreamCrowd::StreamCrowd(uint16_t port, std::vector<std::string> requests)
    : poller_(epoll_create1(EPOLL_CLOEXEC)),
      sockets_(requests.size(), -1),
      streams_(requests.size()) {
  for (size_t i = 0; i < requests.size(); ++i) {
    streams_[i].request = std::move(requests[i]);
    Open(port, i);
  }
  thread_ = std::thread([this] { Run(); });
}

StreamCrowd::~StreamCrowd() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  for (const int socket : sockets_)
    if (socket >= 0) close(socket);
  close(poller_);
}

void StreamCrowd::Open(uint16_t port, size_t stream) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const std::string& request = streams_[stream].request;
  LONGSPAN_CHECK(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
                 "connection {}: error {}", stream, errno);
  LONGSPAN_CHECK(send(socket, request.data(), request.size(), MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(request.size()),
                 "request {}: error {}", stream, errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = stream}};
  epoll_ctl(poller_, EPOLL_CTL_ADD, socket, &event);
  sockets_[stream] = socket;
}

void StreamCrowd::Run() {
  epoll_event ready[256];
  const auto all = static_cast<int>(streams_.size());
  while (!stop_ && done_ + lost_ < all) {
    const int count = epoll_wait(poller_, ready, 256, 100);
    for (int i = 0; i < count; ++i) Read(ready[i].data.u64);
  }
}

void StreamCrowd::Read(size_t stream) {
  char bytes[65536];
  CrowdStream& state = streams_[stream];
  const ssize_t count = recv(sockets_[stream], bytes, sizeof(bytes), 0);
  if (count > 0) Take(state, {bytes, static_cast<size_t>(count)});
  state.ended = count <= 0;
  if (!state.done && !state.ended) return;
  ++(state.done ? done_ : lost_);
  close(sockets_[stream]);
  sockets_[stream] = -1;
}

void StreamCrowd::Take(CrowdStream& stream, std::string_view bytes) {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kComment = ": waiting";
  // A mark that two reads share is looked for again.
  const size_t from = stream.received.size() < 16 ? 0 : stream.received.size() - 16;
  const size_t before = stream.received.size();
  stream.received += bytes;
  const auto count = [&](std::string_view mark) {
    int found = 0;
    for (size_t at = stream.received.find(mark, from); at != std::string::npos;
         at = stream.received.find(mark, at + 1))
      found += at + mark.size() > before ? 1 : 0;
    return found;
  };
  const int events = count(kData);
  if (stream.events == 0 && events > 0) ++begun_;
  stream.events += events;
  events_ += events;
  comments_ += count(kComment);
  stream.done = count("data: [DONE]") > 0;
}

const std::vector<CrowdStream>& StreamCrowd::Finish(std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto all = static_cast<int>(streams_.size());
  while (done_ + lost_ < all && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  stop_ = true;
  thread_.join();
  return streams_;
}

}  // namespace longspan::testing
