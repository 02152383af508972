#include "tests/process/run_program.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/check.h"

namespace longspan::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The fields of /proc/PID/stat behind the name: state, parent, group, ...
std::vector<std::string> StatFields(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

template <class Wanted>
std::vector<pid_t> Processes(const Wanted& wanted) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const auto fields = StatFields(pid);
    if (fields.size() > 12 && fields[0] != "Z" && wanted(fields)) found.push_back(pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::pair<int, int> Pipe() {
  int ends[2];
  LONGSPAN_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe2: {}", errno);
  return {ends[0], ends[1]};
}

void CloseIfOpen(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

std::vector<pid_t> ProcessesOfGroup(pid_t group) {
  return Processes([&](const auto& fields) { return fields[2] == std::to_string(group); });
}

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, RunOptions options)
    : options_(std::move(options)), started_(Clock::now()) {
  std::vector<std::string> words = {options_.program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  // On every machine the same, whether it has a GPU or not; tests of GPUs say so.
  options_.environment.try_emplace("LONGSPAN_BACKEND", "cpu");
  // Cuts that do not depend on times; tests of other policies say so.
  options_.environment.try_emplace("LONGSPAN_CHUNK_POLICY", "fixed");
  // What one run learns is not to change what the next one does.
  options_.environment.try_emplace("LONGSPAN_COST_CACHE", "off");
  for (const auto& [name, value] : options_.environment) {
    std::erase_if(variables, [&](const auto& v) { return v.starts_with(name + "="); });
    variables.push_back(name + "=" + value);
  }
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);

  const auto [input_read, input_write] = Pipe();
  const auto [output_read, output_write] = Pipe();
  int terminal = -1;
  int errors_read = -1;
  int errors_write = -1;
  if (options_.terminal) {
    LONGSPAN_CHECK(openpty(&errors_read, &terminal, nullptr, nullptr, nullptr) == 0, "openpty: {}",
                   errno);
    fcntl(errors_read, F_SETFD, FD_CLOEXEC);
    errors_write = terminal;
  } else {
    std::tie(errors_read, errors_write) = Pipe();
  }
  pid_ = fork();
  LONGSPAN_CHECK(pid_ >= 0, "fork: {}", errno);
  if (pid_ == 0) {
    setpgid(0, 0);
    if (!options_.directory.empty() && chdir(options_.directory.c_str()) != 0) _exit(126);
    dup2(input_read, STDIN_FILENO);
    dup2(options_.terminal ? errors_write : output_write, STDOUT_FILENO);
    dup2(errors_write, STDERR_FILENO);
    if (terminal > STDERR_FILENO) close(terminal);
    if (!options_.output_to.empty()) {
      const int file = open(options_.output_to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      dup2(file, STDOUT_FILENO);
    }
    if (options_.close_output) close(STDOUT_FILENO);
    if (options_.most_bytes) {
      const rlimit limit = {*options_.most_bytes, *options_.most_bytes};
      setrlimit(RLIMIT_AS, &limit);
    }
    execve(argv[0], argv.data(), envp.data());
    _exit(126);
  }
  setpgid(pid_, pid_);  // as the child does: whoever comes first
  close(input_read);
  close(output_write);
  close(errors_write);
  input_ = input_write;
  output_ = output_read;
  errors_ = errors_read;
  fcntl(input_, F_SETFL, O_NONBLOCK);
}

RunningProgram::~RunningProgram() {
  if (waited_) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  CloseIfOpen(input_);
  CloseIfOpen(output_);
  CloseIfOpen(errors_);
}

std::vector<pid_t> RunningProgram::WaitForStages(size_t count) const {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (true) {
    auto stages = Processes([&](const auto& fields) { return fields[1] == std::to_string(pid_); });
    if (stages.size() >= count || Clock::now() > deadline) return stages;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

double RunningProgram::ProcessorSeconds(pid_t pid) {
  const auto fields = StatFields(pid);
  if (fields.size() < 13) return 0;
  return (std::stod(fields[11]) + std::stod(fields[12])) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Feeds stdin and reads stdout and stderr until both have ended.
void RunningProgram::Drain(Clock::time_point deadline) {
  size_t written = 0;
  while (output_ >= 0 || errors_ >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      outcome_.timed_out = true;
      kill(-pid_, SIGKILL);
      return;
    }
    if (input_ >= 0 && written == options_.input.size()) CloseIfOpen(input_);
    pollfd polled[] = {{output_, POLLIN, 0}, {errors_, POLLIN, 0}, {input_, POLLOUT, 0}};
    poll(polled, 3, static_cast<int>(std::min<int64_t>(left, 1000)));
    const auto read_some = [](pollfd& from, int& fd, std::string& text) {
      if (from.revents == 0) return;
      char buffer[4096];
      const ssize_t count = read(fd, buffer, sizeof buffer);
      // A terminal whose other end is closed reports EIO.
      if (count <= 0) return CloseIfOpen(fd);
      text.append(buffer, static_cast<size_t>(count));
    };
    read_some(polled[0], output_, outcome_.output);
    read_some(polled[1], errors_, outcome_.errors);
    if (polled[2].revents == 0) continue;
    const ssize_t count =
        write(input_, options_.input.data() + written, options_.input.size() - written);
    if (count < 0 && errno != EAGAIN) CloseIfOpen(input_);
    if (count > 0) written += static_cast<size_t>(count);
  }
}

Outcome RunningProgram::Wait() {
  Drain(started_ + options_.timeout);
  int status = 0;
  waitpid(pid_, &status, 0);
  waited_ = true;
  outcome_.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
  // Stages that were killed with their leader need a moment to go.
  for (int i = 0; i < 200; ++i) {
    outcome_.left = ProcessesOfGroup(pid_);
    if (outcome_.left.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (const pid_t pid : outcome_.left) kill(pid, SIGKILL);
  CloseIfOpen(input_);
  CloseIfOpen(output_);
  CloseIfOpen(errors_);
  return outcome_;
}

Outcome RunProgram(const std::vector<std::string>& arguments, const RunOptions& options) {
  return RunningProgram(arguments, options).Wait();
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "longspan-XXXXXX").string();
  LONGSPAN_CHECK(mkdtemp(name.data()) != nullptr, "mkdtemp: {}", errno);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string TemporaryFolder::Write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return (path_ / name).string();
}

}  // namespace longspan::testing
