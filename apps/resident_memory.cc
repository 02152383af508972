#include "apps/resident_memory.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <string>

#include <fmt/format.h>

namespace longspan::apps {
namespace {

std::vector<std::string> ProcessFolders() {
  std::vector<std::string> folders = {"/proc/self"};
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(task.path() / "children");
    for (int64_t child = 0; children >> child;) folders.push_back(fmt::format("/proc/{}", child));
  }
  return folders;
}

// A line "KEY:  123 kB" of each process's status (proc(5)), summed.
double SumMib(const char* key) {
  const std::string format = std::string(key) + ": %lf kB";
  double kib = 0;
  for (const std::string& process : ProcessFolders()) {
    std::ifstream status(process + "/status");
    double value = 0;
    for (std::string line; std::getline(status, line);)
      if (std::sscanf(line.c_str(), format.c_str(), &value) == 1) kib += value;
  }
  return kib / 1024;
}

}  // namespace

double RssMib() { return SumMib("VmRSS"); }

double PeakRssMib() { return SumMib("VmHWM"); }

void ResetPeakRss() {
  malloc_trim(0);
  // Linux: 5 sets the high-water mark to what is resident now (proc(5), clear_refs).
  for (const std::string& process : ProcessFolders()) std::ofstream(process + "/clear_refs") << 5;
}

void MemoryCourse::Add(const engine::StepRecord& step) {
  if (begin_ < 0) begin_ = step.leader.begin;
  int64_t tokens = 0;
  for (const engine::ComputedSlice& slice : step.slices) tokens = std::max(tokens, slice.end);
  const auto taken = static_cast<int64_t>(samples_.size());
  if (taken == samples_wanted_ || tokens * samples_wanted_ < prompt_tokens_ * (taken + 1)) return;
  samples_.push_back(
      {.tokens = tokens,
       .seconds = base::Seconds(base::Clock::Duration(step.leader.committed - begin_)),
       .rss_mib = RssMib(),
       .kv_mib = static_cast<double>(tokens * kv_bytes_) / (1 << 20)});
}

}  // namespace longspan::apps
