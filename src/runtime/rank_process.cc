#include "runtime/rank_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tensor/thread_pool.h"

namespace longspan::runtime {
namespace {

constexpr int kFirstInherited = 3;
constexpr unsigned kCloseOnExec = 4;  // CLOSE_RANGE_CLOEXEC, which not all headers have
constexpr size_t kMostInherited = 128;
constexpr std::chrono::milliseconds kEndGrace(2000);
// Between the end of a process's connections and its being there to be waited for.
constexpr std::chrono::milliseconds kExitDelay(500);

// What runs in the child between fork and exec: only calls that are safe there.
[[noreturn]] void BecomeRank(pid_t parent, char* const* arguments,
                             const std::vector<int>& descriptors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  tensor::UnpinThisThread();
  // First out of the way of the numbers that they are to get, then to these; dup2 clears
  // close-on-exec.
  const int base = kFirstInherited + static_cast<int>(descriptors.size());
  int moved[kMostInherited];
  for (size_t i = 0; i < descriptors.size(); ++i)
    moved[i] = fcntl(descriptors[i], F_DUPFD_CLOEXEC, base);
  for (size_t i = 0; i < descriptors.size(); ++i)
    if (moved[i] < 0 || dup2(moved[i], kFirstInherited + static_cast<int>(i)) < 0) _exit(1);
  // Nothing else is a rank's: a client's connection that it held would never close.
  syscall(SYS_close_range, static_cast<unsigned>(base), ~0U, kCloseOnExec);
  // Ctrl-C reaches the whole group; the leader decides what ends, and ranks die with it.
  signal(SIGINT, SIG_IGN);
  execv(arguments[0], arguments);
  _exit(127);
}

class RankProcess : public RankHandle {
 public:
  RankProcess(std::unique_ptr<comm::Channel> channel, pid_t pid)
      : channel_(std::move(channel)),
        pid_(pid),
        // NOLINTNEXTLINE(google-runtime-int): the system call's own type
        pidfd_(static_cast<int>(syscall(SYS_pidfd_open, static_cast<long>(pid), 0L))) {}

  ~RankProcess() override {
    RequestEnd();
    const auto waited = std::chrono::steady_clock::now() - *end_requested_;
    const auto left = kEndGrace - std::chrono::duration_cast<std::chrono::milliseconds>(waited);
    if (!WaitForExit(std::max(left, std::chrono::milliseconds(0)))) {
      kill(pid_, SIGKILL);
      WaitForExit(std::chrono::milliseconds(-1));
    }
  }

  comm::Channel& channel() override { return *channel_; }

  void RequestEnd() override {
    if (channel_ != nullptr) channel_->Close();
    if (!end_requested_) end_requested_ = std::chrono::steady_clock::now();
  }

  void Kill() override {
    RequestEnd();
    if (!exited_) kill(pid_, SIGKILL);
  }

  std::string DescribeEnd() override {
    if (!WaitForExit(kExitDelay)) return {};
    if (WIFSIGNALED(wait_status_))
      return fmt::format("process {} was killed by signal {}", pid_, WTERMSIG(wait_status_));
    if (WEXITSTATUS(wait_status_) == 127)
      return fmt::format("process {} could not be started", pid_);
    if (WEXITSTATUS(wait_status_) != 0)
      return fmt::format("process {} ended with status {}", pid_, WEXITSTATUS(wait_status_));
    return {};
  }

 private:
  // True once the process has ended and was waited for. A negative time waits without limit.
  bool WaitForExit(std::chrono::milliseconds timeout) {
    if (exited_) return true;
    if (pidfd_.valid() && !PollForExit(timeout)) return false;
    const int flags = pidfd_.valid() || timeout.count() < 0 ? 0 : WNOHANG;
    pid_t waited = -1;
    do waited = waitpid(pid_, &wait_status_, flags);
    while (waited < 0 && errno == EINTR);
    exited_ = waited == pid_;
    return exited_;
  }

  bool PollForExit(std::chrono::milliseconds timeout) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    pollfd poller{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    auto left = timeout;
    while (true) {
      const int ready = poll(&poller, 1, static_cast<int>(left.count()));
      if (ready >= 0 || errno != EINTR) return ready > 0;
      if (timeout.count() < 0) continue;
      left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      left = std::max(left, std::chrono::milliseconds(0));
    }
  }

  std::unique_ptr<comm::Channel> channel_;
  pid_t pid_;
  comm::FileDescriptor pidfd_;
  std::optional<std::chrono::steady_clock::time_point> end_requested_;
  bool exited_ = false;
  int wait_status_ = 0;
};

}  // namespace

base::Result<std::unique_ptr<RankHandle>> StartRankProcess(std::unique_ptr<comm::Channel> channel,
                                                           RankProcessOptions options) {
  LONGSPAN_CHECK(options.inherited.size() <= kMostInherited, "{} inherited descriptors",
                 options.inherited.size());
  std::vector<char*> arguments = {options.program.data()};
  for (std::string& argument : options.arguments) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::vector<int> descriptors;
  for (const comm::FileDescriptor& fd : options.inherited) descriptors.push_back(fd.get());
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return base::SystemError(errno, "start a stage process");
  if (pid == 0) BecomeRank(parent, arguments.data(), descriptors);
  return std::unique_ptr<RankHandle>(std::make_unique<RankProcess>(std::move(channel), pid));
}

}  // namespace longspan::runtime
