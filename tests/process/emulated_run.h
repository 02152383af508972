// Thirty-two emulated H20 that generate: eight stages of four tensor-parallel ranks.
#pragma once

#include <string>
#include <vector>

namespace longspan::testing {

// The program's arguments, with more flags behind them.
inline std::vector<std::string> EmulatedRun(const std::string& model,
                                            const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"generate", "--model-path", model, "--backend",
                                        "emulated", "--hardware",   "h20", "--pp-size",
                                        "8",        "--tp-size",    "4"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

}  // namespace longspan::testing
