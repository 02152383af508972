#include "comm/conformance/transports.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "comm/conformance/host_peer_memory.h"
#include "comm/fault/fault.h"
#include "comm/in_process/in_process.h"
#include "comm/peer_copy/peer_link.h"
#include "comm/shared_memory/shared_memory.h"
#include "comm/socket/socket.h"
#include "comm/socket/tcp.h"

namespace longspan::comm {
namespace {

// As two hosts connect.
std::pair<FileDescriptor, FileDescriptor> TcpPair() {
  const std::chrono::seconds timeout(10);
  auto listener = std::move(TcpListener::Listen({"127.0.0.1", 0}).value());
  auto first = std::move(ConnectTcp(listener.address(), timeout, timeout).value());
  auto second = std::move(listener.Accept(timeout, timeout).value());
  const Greeting greeting = {"1.0", "a test", {{"model", "m"}}};
  std::thread other([&] { EXPECT_TRUE(ExchangeGreetings(first, greeting, timeout).ok()); });
  EXPECT_TRUE(ExchangeGreetings(second, greeting, timeout).ok());
  other.join();
  return {std::move(first), std::move(second)};
}

Transport InProcess() { return {"InProcess", CreateInProcessLinkPair, CreateInProcessChannelPair}; }

Transport Unix() {
  return {"Unix", [] { return CreateSocketLinkPair().value(); },
          [](ChannelLimits limits) { return CreateSocketChannelPair(limits).value(); }};
}

Transport SharedMemory() {
  return {"SharedMemory", [] { return CreateSharedMemoryLinkPair().value(); }, nullptr};
}

Transport Tcp() {
  return {"Tcp",
          [] {
            auto [first, second] = TcpPair();
            return LinkPair(CreateSocketLink(std::move(first)).value(),
                            CreateSocketLink(std::move(second)).value());
          },
          [](ChannelLimits limits) {
            auto [first, second] = TcpPair();
            return ChannelPair(CreateSocketChannel(std::move(first), limits).value(),
                               CreateSocketChannel(std::move(second), limits).value());
          }};
}

// Between memories that are no host's, with `inner` for what the ends tell each other.
Transport PeerCopy(const Transport& inner) {
  return {"PeerCopyOver" + inner.name,
          [inner] {
            auto [first, second] = inner.make_links();
            return LinkPair(CreatePeerLink(std::move(first), HostPeerMemory()),
                            CreatePeerLink(std::move(second), HostPeerMemory()));
          },
          nullptr};
}

Transport Decorated(const std::string& name, const Transport& inner, const FaultPlan& plan) {
  Transport decorated = {name + inner.name,
                         [inner, plan] {
                           auto [first, second] = inner.make_links();
                           return LinkPair(CreateFaultInjectingLink(std::move(first), plan),
                                           CreateFaultInjectingLink(std::move(second), plan));
                         },
                         nullptr, 4 << 20};
  if (inner.make_channels)
    decorated.make_channels = [inner, plan](ChannelLimits limits) {
      auto [first, second] = inner.make_channels(limits);
      return ChannelPair(CreateFaultInjectingChannel(std::move(first), plan),
                         CreateFaultInjectingChannel(std::move(second), plan));
    };
  return decorated;
}

}  // namespace

std::vector<Transport> LinkTransports() {
  FaultPlan delayed;
  delayed.delay = std::chrono::microseconds(200);
  std::vector<Transport> transports = {InProcess(), Unix(), SharedMemory(), Tcp(),
                                       PeerCopy(SharedMemory())};
  for (const Transport& inner : {InProcess(), Unix(), SharedMemory()}) {
    transports.push_back(Decorated("Faultless", inner, {}));
    transports.push_back(Decorated("Delayed", inner, delayed));
  }
  transports.push_back(PeerCopy(Decorated("Delayed", Unix(), delayed)));
  return transports;
}

std::vector<Transport> ChannelTransports() {
  std::vector<Transport> transports = LinkTransports();
  std::erase_if(transports, [](const Transport& transport) { return !transport.make_channels; });
  return transports;
}

Bytes Pattern(uint64_t seed, size_t size) {
  Bytes bytes(size);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t begin = 0; begin < size; begin += sizeof(state)) {
    state = state * 6364136223846793005 + 1442695040888963407;
    std::memcpy(bytes.data() + begin, &state, std::min(sizeof(state), size - begin));
  }
  return bytes;
}

std::string WrongPattern(uint64_t seed, size_t size, const Bytes& bytes) {
  if (bytes.size() != size)
    return fmt::format("message {} has {} bytes and not {}", seed, bytes.size(), size);
  return bytes == Pattern(seed, size) ? "" : fmt::format("the bytes of message {} differ", seed);
}

size_t RandomSize(uint64_t seed) {
  std::mt19937_64 random(seed);
  return random() % (size_t{1} << (random() % 17));
}

double SecondsOf(const std::function<void()>& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace longspan::comm
