// Runs the real program in a real process, as a shell would.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace longspan::testing {

struct RunOptions {
  std::map<std::string, std::string> environment;  // besides the test's own
  std::filesystem::path directory;                 // to run in; empty: the test's
  std::string input;                               // what its stdin holds
  std::chrono::seconds timeout{60};                // then the whole process group is killed
  bool terminal = false;             // stdout and stderr are one terminal; its text is in `errors`
  std::string output_to;             // stdout goes to this file instead
  bool close_output = false;         // stdout is closed
  std::optional<size_t> most_bytes;  // of address space
  std::string program = LONGSPAN_PROGRAM;
};

struct Outcome {
  int exit_code = -1;  // -1: did not exit
  int signal = 0;      // that ended it
  bool timed_out = false;
  std::string output;
  std::string errors;
  double seconds = 0;
  std::vector<pid_t> left;  // processes of its group that it left behind; killed now
};

// Starts the program with these arguments in a process group of its own and waits for its end.
Outcome RunProgram(const std::vector<std::string>& arguments, const RunOptions& options = {});

// A program that runs while the test does something to it.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments, RunOptions options = {});
  RunningProgram(const RunningProgram&) = delete;
  ~RunningProgram();

  pid_t pid() const { return pid_; }
  // Its stage processes, in the order in which they were started; waits until there are `count`.
  std::vector<pid_t> WaitForStages(size_t count) const;
  // Processor time that a process has used so far.
  static double ProcessorSeconds(pid_t pid);
  // Waits for the end. Once.
  Outcome Wait();

 private:
  void Drain(std::chrono::steady_clock::time_point deadline);

  RunOptions options_;
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  int errors_ = -1;
  bool waited_ = false;
  Outcome outcome_;
  std::chrono::steady_clock::time_point started_;
};

// Living processes (not those that only wait to be reaped) of a process group.
std::vector<pid_t> ProcessesOfGroup(pid_t group);

// A folder that goes away with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  // Writes a file into it and returns its path.
  std::string Write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace longspan::testing
