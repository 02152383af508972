#include "tests/support/http_client.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cctype>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace longspan::testing {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

std::vector<std::string> HttpReply::Events() const {
  std::vector<std::string> events;
  constexpr std::string_view kData = "data: ";
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = std::min(body.find('\n', begin), body.size());
    const std::string_view line = std::string_view(body).substr(begin, end - begin);
    if (line.starts_with(kData)) events.emplace_back(line.substr(kData.size()));
    begin = end + 1;
  }
  return events;
}

HttpClient::HttpClient(uint16_t port, std::chrono::milliseconds timeout) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    Close();
    return;
  }
  const timeval time{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void HttpClient::Close(bool reset) {
  if (socket_ < 0) return;
  if (reset) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(socket_);
  socket_ = -1;
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void HttpClient::ShutdownSend() { shutdown(socket_, SHUT_WR); }

bool HttpClient::Receive() {
  char bytes[65536];
  const ssize_t count = recv(socket_, bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  received_.append(bytes, static_cast<size_t>(count));
  return true;
}

std::string HttpClient::ReadUntil(std::string_view text) {
  size_t found = std::string::npos;
  while ((found = received_.find(text)) == std::string::npos && Receive()) {
  }
  const size_t end = found == std::string::npos ? received_.size() : found + text.size();
  std::string read = received_.substr(0, end);
  received_.erase(0, end);
  return read;
}

bool HttpClient::ReadsEnd() {
  while (Receive()) received_.clear();
  return errno != EAGAIN && errno != EWOULDBLOCK;
}

HttpReply HttpClient::Read(bool head) {
  HttpReply reply;
  std::string text = ReadUntil("\r\n\r\n");
  if (!text.ends_with("\r\n\r\n")) return reply;
  reply.status = std::stoi(text.substr(text.find(' ') + 1, 3));
  if (reply.status == 100) return Read(head);
  for (size_t begin = text.find("\r\n") + 2; begin + 2 < text.size();) {
    const size_t end = text.find("\r\n", begin);
    const size_t colon = text.find(": ", begin);
    if (colon == std::string::npos || colon > end) break;
    std::string name = text.substr(begin, colon - begin);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    reply.headers[name] = text.substr(colon + 2, end - colon - 2);
    begin = end + 2;
  }
  if (head) return reply;
  const auto framing = reply.headers.find("transfer-encoding");
  if (framing != reply.headers.end() && framing->second == "chunked") {
    while (true) {
      const std::string line = ReadUntil("\r\n");
      if (!line.ends_with("\r\n")) return reply;
      const size_t size = std::stoul(line, nullptr, 16);
      while (received_.size() < size + 2 && Receive()) {
      }
      if (size > 0) reply.chunks.push_back(received_.substr(0, size));
      reply.body += received_.substr(0, size);
      received_.erase(0, size + 2);
      if (size == 0) return reply;
    }
  }
  const auto length = reply.headers.find("content-length");
  if (length == reply.headers.end()) {
    while (Receive()) {
    }
    reply.body = std::exchange(received_, {});
    return reply;
  }
  const size_t size = std::stoul(length->second);
  while (received_.size() < size && Receive()) {
  }
  reply.body = received_.substr(0, size);
  received_.erase(0, size);
  return reply;
}

HttpReply HttpClient::Request(const std::string& method, const std::string& path,
                              const std::string& body, const std::string& more_headers) {
  Send(RequestText(method, path, body, more_headers));
  return Read(method == "HEAD");
}

std::string RequestText(const std::string& method, const std::string& path, const std::string& body,
                        const std::string& more_headers) {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more_headers;
  if (!body.empty() || method == "POST")
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

uint16_t FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(listener);
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace longspan::testing
