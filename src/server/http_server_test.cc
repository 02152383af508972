// How the server answers, streams and ends.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http_test_support.h"
#include "tests/support/http_client.h"

namespace longspan::server {
namespace {

using ::testing::HasSubstr;
using testing::HttpClient;
using testing::HttpReply;
using ::testing::Not;
using testing::RequestText;
using ::testing::StartsWith;

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

TEST_F(HttpServerTest, ATargetMayBeAWholeAddress) {
  StartServer();
  HttpClient client(server_->port());
  client.Send("GET http://a.example:1/b?c=d HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /b?c=d ");
  client.Send("GET HTTP://a.example?c HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(client.Read().body, "GET /?c ");
  client.Send("GET /host HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(client.Read().body, "other");
  client.Send("GET http://a.example:1/host HTTP/1.1\r\nHost: other\r\n\r\n");
  EXPECT_EQ(client.Read().body, "a.example:1");
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

// From its first byte on; the end of its connection is told with the answer.
TEST_F(HttpServerTest, ADrainingServerReadsWhatIsOnItsWay) {
  StartServer();
  HttpClient head(server_->port());
  head.Send("POST /head HTTP/1.1\r\nHost: x\r\n");
  HttpClient body(server_->port());
  body.Send("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
  EXPECT_TRUE(Becomes([&] { return server_->active() == 2; }));
  server_->StopAccepting();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(server_->active(), 2);
  body.Send("cd");
  const HttpReply reply = body.Read();
  EXPECT_EQ(reply.body, "POST /body? abcd");
  EXPECT_EQ(reply.headers.at("connection"), "close");
  head.Send("\r\n");
  EXPECT_EQ(head.Read().status, 200);
  EXPECT_TRUE(Becomes([&] { return server_->active() == 0; }));
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
