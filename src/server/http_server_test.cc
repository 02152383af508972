// The server on real sockets, with a handler of its own.
#include "server/http_server.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"

namespace longspan::server {
namespace {

using ::testing::HasSubstr;
using testing::HttpClient;
using testing::HttpReply;
using ::testing::Not;
using testing::RequestText;
using ::testing::StartsWith;

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

TEST_F(HttpServerTest, AnswersManyRequestsOfOneConnection) {
  StartServer();
  HttpClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    const HttpReply reply = client.Post("/a?b=c", "body" + std::to_string(i));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "POST /a?b=c body" + std::to_string(i));
  }
  EXPECT_EQ(client.Request("HEAD", "/x").status, 200);
  EXPECT_EQ(client.Get("/y").body, "GET /y? ");
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  StartServer();
  HttpClient client(server_->port());
  std::string text;
  for (int i = 0; i < 50; ++i) text += RequestText("POST", "/p", std::to_string(i));
  client.Send(text);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.Read().body, "POST /p? " + std::to_string(i));
}

TEST_F(HttpServerTest, TakesChunkedBodiesAndExpectations) {
  StartServer();
  HttpClient client(server_->port());
  client.Send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.Send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.Read().body, "POST /c? abcde");
  client.Send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue"));
  client.Send("hi");
  EXPECT_EQ(client.Read().body, "POST /e? hi");
}

TEST_F(HttpServerTest, RefusesWhatIsTooLargeOrNoRequest) {
  StartServer({.body_bytes = 1000, .header_bytes = 4096});
  const auto status = [&](const std::string& text) {
    HttpClient client(server_->port());
    client.Send(text);
    const int got = client.Read().status;
    EXPECT_TRUE(client.ReadsEnd()) << text;
    return got;
  };
  EXPECT_EQ(status(RequestText("POST", "/", std::string(1001, 'x'))), 413);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n"), 413);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                   std::string(2000, 'x')),
            413);
  EXPECT_EQ(status(RequestText("GET", "/", "", "X: " + std::string(8000, 'x') + "\r\n")), 431);
  EXPECT_EQ(status("hello\r\n\r\n"), 400);
  EXPECT_EQ(status(std::string("GET /\0 HTTP/1.1\r\n\r\n", 19)), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  for (const char* name : {"Host", "Authorization", "X-API-Key", "Content-Type"}) {
    const std::string header = std::string(name) + ": a\r\n";
    EXPECT_EQ(status("GET / HTTP/1.1\r\n" + header + header + "\r\n"), 400) << name;
  }
  EXPECT_EQ(status(std::string("GET / HTTP/1.1\r\nX: a\0b\r\n\r\n", 27)), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nX : a\r\n\r\n"), 400);
  EXPECT_EQ(status(RequestText("POST", "/forbidden", "secret")), 401);
  // A server that is well answers on.
  EXPECT_EQ(HttpClient(server_->port()).Get("/").status, 200);
}

TEST_F(HttpServerTest, AllBodiesTogetherAreBounded) {
  StartServer({.body_bytes = 1000, .all_bodies_bytes = 1500});
  HttpClient half(server_->port());
  half.Send("POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(999, 'x'));
  EXPECT_TRUE(Becomes([&] {
    HttpClient other(server_->port());
    return other.Post("/", std::string(800, 'y')).status == 503;
  }));
  EXPECT_EQ(HttpClient(server_->port()).Post("/", std::string(400, 'y')).status, 200);
  half.Send("x");
  EXPECT_EQ(half.Read().status, 200);
  EXPECT_TRUE(Becomes([&] {
    HttpClient other(server_->port());
    return other.Post("/", std::string(800, 'y')).status == 200;
  }));
}

TEST_F(HttpServerTest, SlowSendersAreToldAndLeft) {
  StartServer({.request_time = std::chrono::seconds(1), .idle_time = std::chrono::seconds(1)});
  HttpClient half_head(server_->port());
  half_head.Send("POST / HTTP/1.1\r\nContent-");
  HttpClient half_body(server_->port());
  half_body.Send("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab");
  HttpClient silent(server_->port());
  EXPECT_EQ(half_head.Read().status, 408);
  EXPECT_EQ(half_body.Read().status, 408);
  EXPECT_EQ(silent.Read().status, 0);
  half_head.Close();
  half_body.Close();
  EXPECT_TRUE(Becomes([&] { return server_->connections() == 0; }));
}

// However long a body is to be, and however few bytes it comes in.
TEST_F(HttpServerTest, StalledBodiesAreLeftInTime) {
  StartServer({.request_time = std::chrono::seconds(1)});
  HttpClient told(server_->port());
  told.Send("POST / HTTP/1.1\r\nContent-Length: 60000000\r\n\r\n" + std::string(1000, 'x'));
  HttpClient chunked(server_->port());
  chunked.Send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    told.Send("x");
    chunked.Send(i == 0 ? "cde\r\n" : "1\r\nx\r\n");
  }
  EXPECT_EQ(told.Read().status, 408);
  EXPECT_EQ(chunked.Read().status, 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  // A large one that comes is taken.
  EXPECT_EQ(HttpClient(server_->port()).Post("/", std::string(30'000'000, 'x')).status, 200);
}

TEST_F(HttpServerTest, ReadersThatStopAreLeftInTime) {
  StartServer({.write_time = std::chrono::seconds(1)});
  HttpClient client(server_->port());
  client.Send(RequestText("POST", "/", std::string(40'000'000, 'x')));
  EXPECT_TRUE(Becomes([&] { return handler_.done == 1; }));
  EXPECT_EQ(handler_.gone, 1);
  EXPECT_TRUE(Becomes([&] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, StreamsPieceByPiece) {
  StartServer();
  HttpClient client(server_->port());
  client.Send(RequestText("GET", "/stream", ""));
  auto [exchange, ticks] = handler_.NextStream();
  EXPECT_THAT(client.ReadUntil("tick\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  exchange->Wake();
  EXPECT_EQ(client.ReadUntil("tick\r\n"), "4\r\ntick\r\n");
  ticks->end = true;
  exchange->Wake();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "3\r\nend\r\n0\r\n\r\n");
  EXPECT_EQ(client.Get("/next").status, 200);
  EXPECT_FALSE(ticks->gone);
}

TEST_F(HttpServerTest, ASilentStreamIsKeptAlive) {
  StartServer({.silence = std::chrono::milliseconds(50)});
  HttpClient client(server_->port());
  client.Send(RequestText("GET", "/stream", ""));
  auto [exchange, ticks] = handler_.NextStream();
  client.ReadUntil("silence\r\n");
  EXPECT_THAT(client.ReadUntil("silence\r\n"), HasSubstr("silence"));
  ticks->end = true;
  exchange->Wake();
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), HasSubstr("end"));
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticed) {
  StartServer();
  for (const bool reset : {false, true}) {
    for (const char* path : {"/stream", "/wait"}) {
      HttpClient client(server_->port());
      client.Send(RequestText("GET", path, ""));
      auto [exchange, ticks] = handler_.NextStream();
      EXPECT_FALSE(exchange->gone());
      client.Close(reset);
      EXPECT_TRUE(Becomes([&, exchange = exchange] { return exchange->gone(); })) << path;
      // Too late for an answer, and no harm done.
      if (std::string_view(path) == "/wait") exchange->Attach(ticks);
      EXPECT_TRUE(Becomes([&, ticks = ticks] { return ticks->gone.load(); })) << path;
      exchange->Respond({.status = 200});
      exchange->Wake();
    }
  }
  EXPECT_TRUE(Becomes([&] { return server_->connections() == 0; }));
  EXPECT_EQ(handler_.gone, 4);
}

TEST_F(HttpServerTest, ShortAnswersReachClientsThatHaveNoMoreToSay) {
  StartServer();
  HttpClient client(server_->port());
  client.Send(RequestText("POST", "/a", "b"));
  client.ShutdownSend();
  EXPECT_EQ(client.Read().body, "POST /a? b");
}

TEST_F(HttpServerTest, OldClientsGetTheEndByTheConnections) {
  StartServer();
  HttpClient client(server_->port());
  client.Send("GET /stream HTTP/1.0\r\n\r\n");
  auto [exchange, ticks] = handler_.NextStream();
  EXPECT_THAT(client.ReadUntil("\r\n\r\ntick"), Not(HasSubstr("Transfer-Encoding")));
  ticks->end = true;
  exchange->Wake();
  EXPECT_EQ(client.ReadUntil("end"), "end");
  EXPECT_TRUE(client.ReadsEnd());
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreClosed) {
  StartServer({.connections = 2});
  HttpClient one(server_->port());
  HttpClient two(server_->port());
  EXPECT_EQ(one.Get("/").status, 200);
  EXPECT_EQ(two.Get("/").status, 200);
  HttpClient three(server_->port());
  EXPECT_EQ(three.Get("/").status, 0);
  one.Close();
  EXPECT_TRUE(Becomes([&] { return HttpClient(server_->port()).Get("/").status == 200; }));
}

TEST_F(HttpServerTest, ADrainingServerAnswersWhatItHasBegun) {
  StartServer();
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.Get("/").status, 200);
  HttpClient busy(server_->port());
  busy.Send(RequestText("GET", "/stream", ""));
  auto [exchange, ticks] = handler_.NextStream();
  server_->StopAccepting();
  EXPECT_TRUE(idle.ReadsEnd());
  EXPECT_EQ(server_->active(), 1);
  ticks->end = true;
  exchange->Wake();
  EXPECT_THAT(busy.ReadUntil("0\r\n\r\n"), HasSubstr("end"));
  EXPECT_TRUE(busy.ReadsEnd());
  EXPECT_TRUE(Becomes([&] { return server_->active() == 0; }));
  EXPECT_FALSE(HttpClient(server_->port()).connected());
}

TEST_F(HttpServerTest, StopEndsWhatIsBeingAnswered) {
  StartServer();
  HttpClient client(server_->port());
  client.Send(RequestText("GET", "/stream", ""));
  auto [exchange, ticks] = handler_.NextStream();
  server_->Stop();
  EXPECT_TRUE(ticks->gone);
  EXPECT_TRUE(client.ReadsEnd());
}

TEST_F(HttpServerTest, ATakenPortIsRefusedWithASentence) {
  StartServer();
  const auto second = HttpServer::Listen("127.0.0.1", server_->port(), {}, handler_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("--port"));
}

}  // namespace
}  // namespace longspan::server
