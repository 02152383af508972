// What a prefill holds beside weights and KV pages.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

using nlohmann::json;

// SmolLM2-135M in bf16: tied, so embedding and head are one matrix of 54 MiB.
TEST(MemoryTest, BesideWeightsAndPagesThereIsLittleEvenWithLongChunks) {
  constexpr double kMiB = 1 << 20;
  constexpr double kWeights = 134'515'008 * 2 / kMiB;
  constexpr double kTokens = 2048;
  constexpr double kPages = kTokens * 23'040 / kMiB;
  const Outcome outcome = RunProgram(
      {"bench", "prefill", "--model-path", LONGSPAN_SOURCE_DIR "/bench/models/smollm2-135m",
       "--load-format", "dummy", "--backend", "cpu", "--dtype", "bf16", "--threads", "1",
       "--prompt-len", "2048", "--chunked-prefill-size", "2048", "--repeat", "1", "--json"},
      {.timeout = std::chrono::seconds(200)});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const json row = json::parse(outcome.output)["rows"][0];
  const double beside = row["peak_rss_mib"].get<double>() - kWeights - kPages;
  fmt::print("beside weights and pages: {:.1f} MiB\n", beside);
  EXPECT_LE(beside, 50);
}

}  // namespace
}  // namespace longspan::testing
