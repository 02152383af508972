// Peers that die or lie, for the tests of transports over a stream socket.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <span>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "comm/stream_socket.h"
#include "comm/wire.h"

namespace longspan::comm {

// A child process that has the other end of a socket, until it is killed.
class ChildPeer {
 public:
  // Does nothing.
  ChildPeer() : ChildPeer(nullptr) {}
  // Runs `body` in the child; the parent must have no other thread then.
  explicit ChildPeer(const std::function<void(FileDescriptor socket)>& body) {
    auto [mine, its] = std::move(CreateSocketPair().value());
    child_ = ::fork();
    if (child_ == 0) {
      mine.Reset();
      if (body != nullptr) body(std::move(its));
      for (;;) ::pause();
    }
    socket_ = std::move(mine);
  }
  ChildPeer(const ChildPeer&) = delete;
  ~ChildPeer() { Kill(); }

  FileDescriptor TakeSocket() { return std::move(socket_); }
  void Kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  FileDescriptor socket_;
};

// A peer that is driven by hand.
class RawPeer {
 public:
  RawPeer() {
    auto pair = std::move(CreateSocketPair().value());
    end_ = std::move(pair.first);
    raw_ = std::move(pair.second);
  }
  FileDescriptor TakeEnd() { return std::move(end_); }
  int raw() const { return raw_.get(); }
  // The end under test may have hung up already: then nothing is written.
  void Write(std::span<const std::byte> bytes) {
    (void)!::send(raw_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void Write(const FrameHeader& header) { Write(std::as_bytes(std::span(&header, 1))); }
  // Hanging up while unread bytes wait resets the connection, so they are read first.
  void HangUp() {
    std::vector<std::byte> waiting(1 << 16);
    (void)!::recv(raw_.get(), waiting.data(), waiting.size(), MSG_DONTWAIT);
    raw_.Reset();
  }

 private:
  FileDescriptor end_, raw_;
};

inline FrameHeader Header(FrameKind kind, uint64_t number, uint64_t size) {
  FrameHeader header;
  header.kind = kind;
  header.number = number;
  header.size = size;
  return header;
}

inline size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace longspan::comm
