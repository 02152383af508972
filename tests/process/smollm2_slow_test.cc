// A long document given to a real model, where tools/install_smollm2.py has put it.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kFolder = LONGSPAN_SOURCE_DIR "/models/SmolLM2-135M-Instruct";

TEST(SmolLm2SlowTest, AnswersAboutALongDocumentAndShowsThePrefillsProgress) {
  if (!std::filesystem::exists(std::filesystem::path(kFolder) / "config.json"))
    GTEST_SKIP() << "there is no " << kFolder
                 << ", which tools/install_smollm2.py makes where it can be downloaded";
  const Outcome outcome =
      RunProgram({"generate", "--model-path", kFolder, "--document",
                  LONGSPAN_SOURCE_DIR "/examples/island.txt", "--ask",
                  "Who was the lighthouse keeper of the island?", "--max-tokens", "40"},
                 {.timeout = std::chrono::seconds(280), .terminal = true});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("Edmund Harrow"));
  EXPECT_THAT(outcome.errors,
              ContainsRegex("Prefill \\[#+-+\\] +[0-9]+%  [0-9,]+ of 6,016 tokens"));
}

}  // namespace
}  // namespace longspan::testing
