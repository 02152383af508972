// A blocking HTTP client that can also misbehave, for tests of the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace longspan::testing {

struct HttpReply {
  int status = 0;                              // 0: the connection ended before there was one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without the framing of chunks
  std::vector<std::string> chunks;             // of a chunked body

  // The JSON of the events "data: ..." of a stream, and "[DONE]"; comments are left out.
  std::vector<std::string> Events() const;
};

// One connection to 127.0.0.1. What takes longer than the timeout counts as the connection's end.
class HttpClient {
 public:
  explicit HttpClient(uint16_t port, std::chrono::milliseconds timeout = std::chrono::seconds(60));
  HttpClient(const HttpClient&) = delete;
  ~HttpClient() { Close(); }

  bool connected() const { return socket_ >= 0; }
  // False where the other side is gone.
  bool Send(std::string_view bytes);
  // No more is sent; answers still come.
  void ShutdownSend();
  // Ends the connection; `reset`: without ceremony.
  void Close(bool reset = false);

  // One whole answer; `head`: to a HEAD request, without a body.
  HttpReply Read(bool head = false);
  // What comes until `text` was seen (included) or the connection ended.
  std::string ReadUntil(std::string_view text);
  // Whether the other side closes, or has closed, the connection.
  bool ReadsEnd();

  HttpReply Request(const std::string& method, const std::string& path,
                    const std::string& body = {}, const std::string& more_headers = {});
  HttpReply Get(const std::string& path) { return Request("GET", path); }
  HttpReply Post(const std::string& path, const std::string& json) {
    return Request("POST", path, json, "Content-Type: application/json\r\n");
  }

 private:
  bool Receive();

  int socket_ = -1;
  std::string received_;
};

// The bytes of a request.
std::string RequestText(const std::string& method, const std::string& path, const std::string& body,
                        const std::string& more_headers = {});

// A port that nobody listens on now.
uint16_t FreePort();

}  // namespace longspan::testing
