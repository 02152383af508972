// The inputs that fuzzers have found worth keeping, and thousands of changes of them: always the
// same ones.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/fuzz/frame_mutator.h"
#include "tests/fuzz/targets/fuzz_targets.h"

namespace longspan::testing {
namespace {

constexpr int kChanges = 2000;

std::vector<Bytes> Corpus(std::string_view name) {
  std::vector<std::filesystem::path> paths;
  const std::filesystem::path folder = LONGSPAN_SOURCE_DIR "/tests/fuzz/corpus";
  for (const auto& entry : std::filesystem::directory_iterator(folder / name))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const auto bytes = std::as_bytes(std::span(text));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}

class CorpusReplayTest : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(CorpusReplayTest, NothingBreaks) {
  const auto run = [](const Bytes& input) {
    GetParam().run({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
  };
  std::vector<Bytes> corpus = Corpus(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  run({});
  for (const Bytes& input : corpus) run(input);
  std::erase_if(corpus, [](const Bytes& input) { return input.empty(); });
  FrameMutator mutator(1, std::move(corpus));
  for (int i = 0; i < kChanges; ++i) run(mutator.Next());
}

INSTANTIATE_TEST_SUITE_P(Targets, CorpusReplayTest, ::testing::ValuesIn(kFuzzTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace longspan::testing
