// The program where there is no GPU, or a driver that is too old for it.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of CUDA 12.2 (fake_driver.cc), in the place of the machine's own.
const std::map<std::string, std::string> kOldDriver = {
    {"LD_LIBRARY_PATH", LONGSPAN_FAKE_DRIVER_FOLDER}};

Outcome Generate(const char* backend, const std::map<std::string, std::string>& environment) {
  return RunProgram({"generate", "--backend", backend, "--prompt", "x", "--max-tokens", "1"},
                    {.environment = environment});
}

TEST(GpuRefusalTest, AnOldDriverIsNamed) {
  const Outcome run = Generate("cuda", kOldDriver);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, IsEmpty());
  EXPECT_THAT(run.errors, HasSubstr("longspan: the NVIDIA driver is for CUDA 12.2, older than"));
}

TEST(GpuRefusalTest, AutoComputesOnTheCpuAndSaysWhy) {
  const Outcome run = Generate("auto", kOldDriver);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.errors, HasSubstr("computing on the CPU: the NVIDIA driver"));
}

// Hides what GPUs there are.
TEST(GpuRefusalTest, NoGpuIsSaid) {
  const Outcome run = Generate("cuda", {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.errors, HasSubstr("no NVIDIA GPU was found: use --backend cpu"));
}

}  // namespace
}  // namespace longspan::testing
