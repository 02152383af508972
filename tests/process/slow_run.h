// A run that takes long enough for something to happen to it, in its prefill or while it decodes.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {

// Files of a run lie in `folder`.
struct SlowRun {
  const TemporaryFolder& folder;
  int stages = 2;
  std::string backend = "reference";
  int lanes = 1;  // ranks of a stage, which divide its experts
  int prompt = 700;
  int tokens = 300;
  int chunk = 64;
  std::vector<std::string> more;  // flags

  std::string output() const { return (folder.path() / "output.txt").string(); }

  // Random draws, unless it is said otherwise on the slow backend. The text goes to output() as it
  // comes.
  std::vector<std::string> Arguments() const {
    // Written once: programs that run may be reading it.
    const std::string file = fmt::format("ids-{}.json", prompt);
    if (!std::filesystem::exists(folder.path() / file)) {
      std::vector<int32_t> ids;
      for (int i = 0; i < prompt; ++i) ids.push_back(300 + i * i % 97);
      folder.Write(file, nlohmann::json(ids).dump());
    }
    std::vector<std::string> arguments = {"generate",
                                          "--backend",
                                          backend,
                                          "--ids-file",
                                          (folder.path() / file).string(),
                                          "--threads",
                                          "1",
                                          "--ignore-eos",
                                          "--chunked-prefill-size",
                                          std::to_string(chunk),
                                          "--max-tokens",
                                          std::to_string(tokens),
                                          "--temperature",
                                          "0.8",
                                          "--seed",
                                          "7",
                                          "--pp-size",
                                          std::to_string(stages)};
    if (lanes > 1)
      for (const char* flag : {"--tp-size", "--ep-size"})
        arguments.insert(arguments.end(), {flag, std::to_string(lanes)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Loaded machines need more than the usual time.
  static constexpr std::chrono::seconds kTimeout{150};
  RunOptions Options() const { return {.timeout = kTimeout, .output_to = output()}; }

  std::string Text() const {
    std::ifstream file(output(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // What comes out when nothing happens.
  std::string ExpectedText() const {
    const Outcome outcome = RunProgram(Arguments(), {.timeout = kTimeout});
    return outcome.output;
  }
};

// True once it holds; false when it does not within half a minute.
template <typename Condition>
bool WaitUntil(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace longspan::testing
