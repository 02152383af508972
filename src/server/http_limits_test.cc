// What the server does not take, or not for ever: no requests, too large ones, slow ones, too many.
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
using testing::RequestText;

class HttpLimitsTest : public HttpServerTest {};

TEST_F(HttpLimitsTest, RefusesWhatIsTooLargeOrNoRequest) {
  StartServer({.body_bytes = 1000, .header_bytes = 4096});
  const auto status = [&](const std::string& text) {
    HttpClient client(server_->port());
    client.Send(text);
    const int got = client.Read().status;
    EXPECT_TRUE(client.ReadsEnd()) << text;
    return got;
  };
  EXPECT_EQ(status(RequestText("POST", "/", std::string(1001, 'x'))), 413);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n"), 413);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                   std::string(2000, 'x')),
            413);
  EXPECT_EQ(status(RequestText("GET", "/", "", "X: " + std::string(8000, 'x') + "\r\n")), 431);
  EXPECT_EQ(status("hello\r\n\r\n"), 400);
  EXPECT_EQ(status(std::string("GET /\0 HTTP/1.1\r\n\r\n", 19)), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(
      status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
      400);
  EXPECT_EQ(
      status(
          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
      400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  for (const char* name : {"Host", "Authorization", "X-API-Key", "Content-Type"}) {
    const std::string header = std::string(name) + ": a\r\n";
    EXPECT_EQ(status("GET / HTTP/1.1\r\n" + header + header + "\r\n"), 400) << name;
  }
  EXPECT_EQ(status(std::string("GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 36)), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: x\r\nX : a\r\n\r\n"), 400);
  EXPECT_EQ(status(RequestText("POST", "/forbidden", "secret")), 401);
  // A server that is well answers on.
  EXPECT_EQ(HttpClient(server_->port()).Get("/").status, 200);
}

TEST_F(HttpLimitsTest, AllBodiesTogetherAreBounded) {
  StartServer({.body_bytes = 1000, .all_bodies_bytes = 1500});
  HttpClient half(server_->port());
  half.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + std::string(999, 'x'));
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

TEST_F(HttpLimitsTest, SlowSendersAreToldAndLeft) {
  StartServer({.request_time = std::chrono::seconds(1), .idle_time = std::chrono::seconds(1)});
  HttpClient half_head(server_->port());
  half_head.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-");
  HttpClient half_body(server_->port());
  half_body.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  HttpClient silent(server_->port());
  EXPECT_EQ(half_head.Read().status, 408);
  EXPECT_EQ(half_body.Read().status, 408);
  EXPECT_EQ(silent.Read().status, 0);
  half_head.Close();
  half_body.Close();
  EXPECT_TRUE(Becomes([&] { return server_->connections() == 0; }));
}

// However long a body is to be, and however few bytes it comes in.
TEST_F(HttpLimitsTest, StalledBodiesAreLeftInTime) {
  StartServer({.request_time = std::chrono::seconds(1)});
  HttpClient told(server_->port());
  told.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n" +
            std::string(1000, 'x'));
  HttpClient chunked(server_->port());
  chunked.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
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

TEST_F(HttpLimitsTest, ReadersThatStopAreLeftInTime) {
  StartServer({.write_time = std::chrono::seconds(1)});
  HttpClient client(server_->port());
  client.Send(RequestText("POST", "/", std::string(40'000'000, 'x')));
  EXPECT_TRUE(Becomes([&] { return handler_.done == 1; }));
  EXPECT_EQ(handler_.gone, 1);
  EXPECT_TRUE(Becomes([&] { return server_->connections() == 0; }));
}

TEST_F(HttpLimitsTest, AtTheLimitTheLongestIdleConnectionMakesRoom) {
  StartServer({.connections = 3});
  HttpClient busy(server_->port());
  busy.Send(RequestText("GET", "/stream", ""));
  auto [exchange, ticks] = handler_.NextStream();
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.Get("/").status, 200);
  HttpClient idle_later(server_->port());
  EXPECT_EQ(idle_later.Get("/").status, 200);
  HttpClient another(server_->port());
  EXPECT_EQ(another.Get("/").status, 200);
  EXPECT_TRUE(idle.ReadsEnd());
  EXPECT_EQ(idle_later.Get("/").status, 200);
  ticks->end = true;
  exchange->Wake();
  EXPECT_THAT(busy.ReadUntil("0\r\n\r\n"), HasSubstr("end"));
}

TEST_F(HttpLimitsTest, WhereAllAreBusyAConnectionBeyondTheLimitIsTold) {
  StartServer({.connections = 1});
  HttpClient busy(server_->port());
  busy.Send("GET /half HTTP/1.1\r\n");
  EXPECT_TRUE(Becomes([&] { return server_->active() == 1; }));
  HttpClient another(server_->port());
  const HttpReply reply = another.Get("/");
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body, HasSubstr("connections"));
  EXPECT_TRUE(another.ReadsEnd());
  busy.Send("Host: x\r\n\r\n");
  EXPECT_EQ(busy.Read().status, 200);
  EXPECT_TRUE(Becomes([&] { return HttpClient(server_->port()).Get("/").status == 200; }));
}

TEST_F(HttpLimitsTest, WhoSaysNothingIsLeftSoonerThanWhoHasAsked) {
  StartServer({.request_time = std::chrono::seconds(1), .idle_time = std::chrono::seconds(60)});
  HttpClient asked(server_->port());
  EXPECT_EQ(asked.Get("/").status, 200);
  HttpClient silent(server_->port(), std::chrono::seconds(20));
  EXPECT_TRUE(silent.ReadsEnd());
  EXPECT_EQ(asked.Get("/").status, 200);
}

TEST_F(HttpLimitsTest, ABodyWithoutALengthTakesRoomAsItComes) {
  StartServer({.body_bytes = 1000, .all_bodies_bytes = 1500});
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  HttpClient one(server_->port());
  one.Send(head + "64\r\n" + std::string(100, 'x') + "\r\n");
  HttpClient two(server_->port());
  two.Send(head + "64\r\n" + std::string(100, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(two.Read().status, 200);
  HttpClient large(server_->port());
  large.Send(head + "320\r\n" + std::string(800, 'x') + "\r\n");
  EXPECT_TRUE(Becomes([&] { return server_->active() == 2; }));
  // All of it has been read by the time that others were answered.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(HttpClient(server_->port()).Get("/").status, 200);
  EXPECT_EQ(HttpClient(server_->port()).Post("/", std::string(700, 'y')).status, 503);
  // What begins to grow beyond the room is told.
  one.Send("384\r\n" + std::string(850, 'x'));
  EXPECT_EQ(one.Read().status, 503);
  large.Send("0\r\n\r\n");
  EXPECT_EQ(large.Read().status, 200);
}

TEST_F(HttpLimitsTest, FramingThatIsNotOursIsRefusedByName) {
  StartServer();
  const auto reply = [&](const std::string& head) {
    HttpClient client(server_->port());
    client.Send(head + "\r\n");
    return client.Read();
  };
  const HttpReply gzip =
      reply("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n");
  EXPECT_EQ(gzip.status, 501);
  EXPECT_THAT(gzip.body, HasSubstr("gzip, chunked"));
  EXPECT_EQ(reply("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n").status, 400);
  const HttpReply packed =
      reply("POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n");
  EXPECT_EQ(packed.status, 415);
  EXPECT_THAT(packed.body, HasSubstr("gzip"));
  EXPECT_EQ(reply("GET / HTTP/1.1\r\nHost: x\r\nContent-Encoding: identity\r\n").status, 200);
  EXPECT_EQ(reply("GET / HTTP/1.1\r\n").status, 400);
  EXPECT_EQ(reply("GET / HTTP/1.0\r\n").status, 200);
}

}  // namespace
}  // namespace longspan::server
