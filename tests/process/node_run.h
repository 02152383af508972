// The same command on several nodes, all of them processes of this host.
#pragma once

#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/process/slow_run.h"

namespace longspan::testing {

// A port of 127.0.0.1 that nobody listens on.
inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

struct NodeRun {
  const SlowRun& run;
  int nodes = 2;
  int port = FreePort();

  // Node 0 writes the text to run.output().
  std::unique_ptr<RunningProgram> Start(int node, const std::vector<std::string>& more = {}) const {
    auto arguments = run.Arguments();
    for (const std::string& flag :
         {std::string("--nnodes"), std::to_string(nodes), std::string("--node-rank"),
          std::to_string(node), std::string("--dist-init-addr"), fmt::format("127.0.0.1:{}", port)})
      arguments.push_back(flag);
    arguments.insert(arguments.end(), more.begin(), more.end());
    RunOptions options = {.timeout = SlowRun::kTimeout};
    if (node == 0) options.output_to = run.output();
    return std::make_unique<RunningProgram>(arguments, options);
  }
};

// A run on two nodes that has begun to write its text.
struct StartedNodes {
  explicit StartedNodes(const SlowRun& run, const std::vector<std::string>& more = {})
      : hosts{.run = run}, leader(hosts.Start(0, more)), other(hosts.Start(1, more)) {
    EXPECT_TRUE(WaitUntil([&] { return run.Text().size() > 20; }));
  }

  NodeRun hosts;
  std::unique_ptr<RunningProgram> leader;
  std::unique_ptr<RunningProgram> other;
};

}  // namespace longspan::testing
