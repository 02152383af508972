#include "comm/socket/tcp.h"

#include <cstring>
#include <functional>
#include <net/if.h>
#include <random>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/conformance/peers.h"
#include "comm/socket/socket.h"
#include "comm/wire.h"

namespace longspan::comm {
namespace {

using base::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr seconds kSoon{5};
const TcpAddress kLoopback = {"127.0.0.1", 0};

std::pair<FileDescriptor, FileDescriptor> Connected(milliseconds peer_timeout = kSoon) {
  auto listener = std::move(TcpListener::Listen(kLoopback).value());
  auto first = std::move(ConnectTcp(listener.address(), kSoon, peer_timeout).value());
  return {std::move(first), std::move(listener.Accept(kSoon, peer_timeout).value())};
}

TEST(TcpAddressTest, ParsesHostsAndPorts) {
  EXPECT_EQ(TcpAddress::Parse("10.0.0.1:5000").value(), (TcpAddress{"10.0.0.1", 5000}));
  EXPECT_EQ(TcpAddress::Parse("node-7:0").value(), (TcpAddress{"node-7", 0}));
  EXPECT_EQ(TcpAddress::Parse("[fe80::1]:65535").value(), (TcpAddress{"fe80::1", 65535}));
  for (const char* text : {"10.0.0.1:5000", "node-7:0", "[fe80::1]:65535"})
    EXPECT_EQ(TcpAddress::Parse(text).value().ToString(), text);
  for (const char* text : {"", "host", "host:", ":1", "host:65536", "host:-1", "host:1x", "fe80::1",
                           "fe80::1:5000", "[]:1", "host: 1"}) {
    const auto address = TcpAddress::Parse(text);
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(TcpTest, ConnectsAndCarriesMessages) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    auto listener = std::move(TcpListener::Listen({host, 0}).value());
    EXPECT_NE(listener.address().port, 0);
    auto here = ConnectTcp(listener.address(), kSoon, kSoon);
    auto there = listener.Accept(kSoon, kSoon);
    ASSERT_TRUE(here.ok() && there.ok());
    auto first = std::move(CreateSocketChannel(std::move(*here)).value());
    auto second = std::move(CreateSocketChannel(std::move(*there)).value());
    ASSERT_TRUE(first->Send(Bytes(100)).ok());
    EXPECT_EQ(second->Receive().value(), Bytes(100));
  }
}

TEST(TcpTest, ListeningFailsWithAReason) {
  auto listener = std::move(TcpListener::Listen(kLoopback).value());
  const auto taken = TcpListener::Listen(listener.address());
  EXPECT_EQ(taken.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(taken.status().message(), HasSubstr("choose another port"));
  EXPECT_EQ(TcpListener::Listen({"203.0.113.1", 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TcpListener::Listen({"no host", 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(listener.Accept(milliseconds(20), kSoon).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST(TcpTest, ConnectingGivesUpInTime) {
  const TcpAddress nobody = TcpListener::Listen(kLoopback).value().address();
  const auto start = std::chrono::steady_clock::now();
  const auto socket = ConnectTcp(nobody, milliseconds(300), kSoon);
  const auto taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(socket.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(socket.status().message(), HasSubstr("refused"));
  EXPECT_GE(taken, milliseconds(150));
  EXPECT_LT(taken, milliseconds(2000));
  EXPECT_EQ(ConnectTcp({"no host", 1}, kSoon, kSoon).status().code(), StatusCode::kInvalidArgument);
}

TEST(TcpTest, ConnectingWaitsForAPeerThatStartsLater) {
  const TcpAddress address = TcpListener::Listen(kLoopback).value().address();
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(250));
    auto listener = TcpListener::Listen(address);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    EXPECT_TRUE(listener->Accept(kSoon, kSoon).ok());
  });
  EXPECT_TRUE(ConnectTcp(address, kSoon, kSoon).ok());
  late.join();
}

// What the two ends of a connection find.
std::pair<base::Result<Greeting>, base::Result<Greeting>> Greet(const Greeting& first,
                                                                const Greeting& second) {
  const auto [here, there] = Connected();
  base::Result<Greeting> found = base::Aborted("not run");
  std::thread other([&, &there = there] { found = ExchangeGreetings(there, second, kSoon); });
  auto own = ExchangeGreetings(here, first, kSoon);
  other.join();
  return {std::move(own), std::move(found)};
}

const Greeting kGreeting = {"1.2", "node 0", {{"model", "abc"}, {"--page-size", "64"}}};

TEST(GreetingTest, TellsWhoThePeerIs) {
  Greeting other = kGreeting;
  other.identity = "node 1: residual 0-1";
  std::swap(other.agreement[0], other.agreement[1]);  // the order does not count
  const auto [first, second] = Greet(kGreeting, other);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.value().identity, "node 1: residual 0-1");
  EXPECT_EQ(second.value().identity, "node 0");
  EXPECT_EQ(second.value().agreement, kGreeting.agreement);
}

TEST(GreetingTest, ADifferenceIsNamedOnBothSides) {
  const auto expect = [](const Greeting& other, const std::string& here, const std::string& there) {
    const auto [first, second] = Greet(kGreeting, other);
    EXPECT_EQ(first.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(first.status().message(), HasSubstr(here));
    EXPECT_THAT(second.status().message(), HasSubstr(there));
  };
  Greeting other = kGreeting;
  other.build = "1.3";
  expect(other, "the version is '1.3' at the peer and '1.2' here",
         "the version is '1.2' at the peer and '1.3' here");
  other = kGreeting;
  other.agreement[1].second = "32";
  expect(other, "--page-size is '32' at the peer and '64' here",
         "--page-size is '64' at the peer and '32' here");
  other = kGreeting;
  other.agreement.pop_back();
  expect(other, "--page-size is '(not set)' at the peer and '64' here",
         "--page-size is '64' at the peer and '(not set)' here");
}

// What the greeting says to a peer that does this.
base::Status GreetingTo(const std::function<void(FileDescriptor& peer)>& act,
                        milliseconds timeout = kSoon) {
  auto [here, there] = Connected();
  act(there);
  return ExchangeGreetings(here, kGreeting, timeout).status();
}

void WriteTo(const FileDescriptor& socket, std::span<const std::byte> bytes) {
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

base::Status GreetingToHeader(const FrameHeader& header) {
  return GreetingTo(
      [&](FileDescriptor& peer) { WriteTo(peer, std::as_bytes(std::span(&header, 1))); });
}

TEST(GreetingTest, StrangersAreRefused) {
  EXPECT_EQ(GreetingTo([](FileDescriptor&) {}, milliseconds(50)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GreetingTo([](FileDescriptor& peer) { peer.Reset(); }).code(),
            StatusCode::kUnavailable);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(GreetingTo([&](FileDescriptor& peer) {
              WriteTo(peer, std::as_bytes(std::span(http)));
            }).code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(GreetingToHeader(Header(FrameKind::kFrame, 0, 10)).code(), StatusCode::kDataLoss);
  EXPECT_EQ(GreetingToHeader(Header(FrameKind::kGreeting, 0, uint64_t{1} << 40)).code(),
            StatusCode::kDataLoss);
  FrameHeader version = Header(FrameKind::kGreeting, 0, 10);
  version.version = 77;
  EXPECT_EQ(GreetingToHeader(version).code(), StatusCode::kDataLoss);
  EXPECT_THAT(GreetingToHeader(version).message(), HasSubstr("version 77"));
}

TEST(GreetingTest, NonsenseIsDataLoss) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 100; ++round) {
    Bytes payload(random() % 64);
    for (std::byte& byte : payload) byte = std::byte(random() % 4);
    const FrameHeader header = Header(FrameKind::kGreeting, 0, payload.size());
    const base::Status status = GreetingTo([&](FileDescriptor& peer) {
      WriteTo(peer, std::as_bytes(std::span(&header, 1)));
      WriteTo(peer, payload);
    });
    // A greeting that is whole by chance is another one.
    EXPECT_TRUE(status.code() == StatusCode::kDataLoss ||
                status.code() == StatusCode::kInvalidArgument)
        << status.message();
  }
}

// Runs a function in a child with a network of its own, and gives its exit status.
constexpr int kNoNamespace = 77;
int InOwnNetwork(const std::function<int()>& function) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
      ::_exit(kNoNamespace);
    ::_exit(function());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool SetLoopback(bool up) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return false;
  const int flags = up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<decltype(request.ifr_flags)>(flags);
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

// Both an end that waits and one that has something on its way learn of it.
int ExpectACutIsNoticed() {
  if (!SetLoopback(true)) return kNoNamespace;
  auto [first, second] = Connected(seconds(1));
  auto idle = std::move(CreateSocketLink(std::move(first)).value());
  auto busy = std::move(CreateSocketChannel(std::move(second)).value());
  if (!SetLoopback(false)) return kNoNamespace;
  Bytes buffer(100);
  const Transfer receive = idle->Receive(1, buffer);
  (void)busy->Send(Bytes(100));
  const auto start = std::chrono::steady_clock::now();
  if (receive.WaitFor(kSoon).code() != StatusCode::kUnavailable) return 1;
  if (busy->ReceiveFor(kSoon).status().code() != StatusCode::kUnavailable) return 2;
  return std::chrono::steady_clock::now() - start < milliseconds(3500) ? 0 : 3;
}

int ExpectACutIsNoticedWhenNothingIsSent() {
  if (!SetLoopback(true)) return kNoNamespace;
  auto [first, second] = Connected(seconds(1));
  auto channel = std::move(CreateSocketChannel(std::move(first)).value());
  if (!SetLoopback(false)) return kNoNamespace;
  return channel->ReceiveFor(kSoon).status().code() == StatusCode::kUnavailable ? 0 : 1;
}

TEST(TcpTest, ACutCableIsNoticedWithinThePeerTimeout) {
  const int status = InOwnNetwork(ExpectACutIsNoticed);
  if (status == kNoNamespace) GTEST_SKIP() << "no right to make a network namespace";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(InOwnNetwork(ExpectACutIsNoticedWhenNothingIsSent), 0);
}

}  // namespace
}  // namespace longspan::comm
