#include "tests/load/cpu_time.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace longspan::testing {

std::map<std::string, double> CpuSecondsOfThreads(pid_t process) {
  std::map<std::string, double> seconds;
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), error)) {
    // The first number: nanoseconds on a core.
    std::ifstream file(thread.path() / "schedstat");
    int64_t nanoseconds = 0;
    if (!(file >> nanoseconds)) continue;
    std::string name = "main";
    if (thread.path().filename() != std::to_string(process))
      std::getline(std::ifstream(thread.path() / "comm"), name);
    seconds[name] += static_cast<double>(nanoseconds) * 1e-9;
  }
  return seconds;
}

double CpuSeconds(const std::map<std::string, double>& before,
                  const std::map<std::string, double>& after) {
  double seconds = 0;
  for (const auto& [name, value] : after) seconds += CpuSeconds(before, after, name);
  return seconds;
}

double CpuSeconds(const std::map<std::string, double>& before,
                  const std::map<std::string, double>& after, const std::string& name) {
  const auto of = [&](const std::map<std::string, double>& times) {
    const auto found = times.find(name);
    return found == times.end() ? 0 : found->second;
  };
  return of(after) - of(before);
}

}  // namespace longspan::testing
