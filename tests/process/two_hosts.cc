#include "tests/process/two_hosts.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

// A process in a network namespace of its own that does nothing; its errno where there is none.
pid_t StartHost(int& error) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return -1;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int failure = unshare(CLONE_NEWNET) == 0 ? 0 : errno;
    if (getppid() != parent) _exit(1);
    (void)!write(ready[1], &failure, sizeof(failure));
    while (failure == 0) pause();
    _exit(1);
  }
  close(ready[1]);
  if (read(ready[0], &error, sizeof(error)) != static_cast<ssize_t>(sizeof(error))) error = EIO;
  close(ready[0]);
  return child;
}

// The programs of administrators are not always on the path.
std::string Tool(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"})
    if (std::filesystem::exists(folder + name)) return folder + name;
  return {};
}

}  // namespace

TwoHosts::TwoHosts() { SetUp(); }

TwoHosts::~TwoHosts() {
  for (const auto& host : hosts_) {
    if (!host) continue;
    kill(*host, SIGKILL);
    waitpid(*host, nullptr, 0);
  }
}

void TwoHosts::SetUp() {
  for (const char* tool : {"ip", "tc", "nsenter"}) {
    if (!Tool(tool).empty()) continue;
    missing_ = std::string("there is no ") + tool + " (packages iproute2 and util-linux)";
    return;
  }
  for (auto& host : hosts_) {
    int error = EAGAIN;
    const pid_t pid = StartHost(error);
    if (pid > 0) host = pid;
    if (error == 0) continue;
    missing_ = std::string("network namespaces are not permitted: ") + std::strerror(error);
    return;
  }
  const std::string ip = Tool("ip"), tc = Tool("tc");
  if (!Run(0, {ip, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns",
               std::to_string(*hosts_[1])})) {
    missing_ = "no cable (veth) can be laid between network namespaces";
    return;
  }
  delayed_ = true;
  for (const int host : {0, 1}) {
    if (!Run(host, {ip, "link", "set", "lo", "up"}) ||
        !Run(host, {ip, "address", "add", std::string(Address(host)) + "/24", "dev", "cable"}) ||
        !Run(host, {ip, "link", "set", "cable", "up"})) {
      missing_ = "the cable between network namespaces cannot be set up";
      return;
    }
    if (!Run(host, {tc, "qdisc", "add", "dev", "cable", "root", "handle", "1:", "tbf", "rate",
                    "1gbit", "burst", "256kb", "latency", "50ms"})) {
      missing_ = "tc cannot limit the rate of the cable (tbf)";
      return;
    }
    delayed_ = delayed_ && Run(host, {tc, "qdisc", "add", "dev", "cable", "parent", "1:1", "netem",
                                      "delay", "5ms"});
  }
}

bool TwoHosts::Run(int host, const std::vector<std::string>& command) {
  auto words = On(host, command[0]);
  words.insert(words.end(), command.begin() + 1, command.end());
  RunOptions options = {.program = words[0]};
  words.erase(words.begin());
  return RunProgram(words, options).exit_code == 0;
}

std::vector<std::string> TwoHosts::On(int host, const std::string& program) const {
  return {Tool("nsenter"), "--net=/proc/" + std::to_string(*hosts_[host]) + "/ns/net", program};
}

}  // namespace longspan::testing
