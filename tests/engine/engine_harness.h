// A whole engine in one process, for tests: real stages as threads, real transports between them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/engine_setup.h"
#include "engine/engine.h"

namespace longspan::testing {

// How an engine is laid out; the rest as the program's flags have it.
struct Layout {
  std::string backend = "reference";
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  int stages = 1;
  int virtual_stages = 1;
  int tensor_ranks = 1;
  int expert_ranks = 1;
  int context_ranks = 1;
  std::string token_split = "interleave";
  std::string kv_placement = "replicated";
  int64_t chunk_tokens = 512;
  int threads = 1;
  int page_size = 64;
  std::string load_format = "auto";
  bool deterministic = false;
  int64_t max_total_tokens = 1 << 15;
  int64_t max_running = 64;
  int64_t max_queued = 1024;
  bool reuse_prefixes = true;

  std::string ToString() const;
};

// The project's root: where it was built, or LONGSPAN_SOURCE where the tests were carried
// elsewhere.
std::filesystem::path SourceFolder();

// The project's own copy of a model: "rand-llama", or the embedded "tiny-qwen3-moe". Trained models
// that the project does not carry ("tiny-deepseek-v3") are in FixturesFolder().
std::filesystem::path ModelFolder(const std::string& name);

// Whether a model is in FixturesFolder() rather than in the project.
bool IsFixture(const std::string& name);

// LONGSPAN_FIXTURES relative to the source root, or ../shared/fixtures.
std::filesystem::path FixturesFolder();

// At the head of a test that needs the fixtures: skips it where there are none, and fails it where
// LONGSPAN_FIXTURES named them.
#define LONGSPAN_REQUIRE_FIXTURES()                                                  \
  do {                                                                               \
    if (std::filesystem::is_directory(::longspan::testing::FixturesFolder())) break; \
    if (std::getenv("LONGSPAN_FIXTURES") != nullptr)                                 \
      FAIL() << "no folder " << ::longspan::testing::FixturesFolder();               \
    GTEST_SKIP() << "no folder " << ::longspan::testing::FixturesFolder()            \
                 << "; LONGSPAN_FIXTURES may name another one";                      \
  } while (false)

// Whether this build and machine have the backend.
bool HasBackend(const std::string& name);

// At the head of a test over several backends: skips it where there is no GPU.
#define LONGSPAN_REQUIRE_BACKEND(name) \
  if (!::longspan::testing::HasBackend(name)) GTEST_SKIP() << "no backend " << (name)

// Starts an engine; a failure to start fails the test.
std::unique_ptr<engine::Engine> Start(const std::filesystem::path& model, const Layout& layout);

// What `score` reports.
struct Scores {
  std::vector<int64_t> positions;
  std::vector<std::vector<float>> logits;  // by position
  std::vector<double> next_logprobs;       // by position
  std::vector<std::vector<float>> hidden;  // by depth, of the last position
  int64_t cached_tokens = 0;
};
Scores Score(engine::Engine& engine, const std::vector<int32_t>& ids,
             std::vector<int64_t> positions);

// What `generate` reports.
struct Generated {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  engine::FinishReason reason = engine::FinishReason::kAbort;
  int64_t cached_tokens = 0;
};
std::vector<Generated> Generate(engine::Engine& engine, std::vector<engine::Request> requests);
Generated Generate(engine::Engine& engine, engine::Request request);

// `count` token ids below `vocab`, the same for the same seed.
std::vector<int32_t> RandomIds(int64_t count, int vocab, uint64_t seed);

}  // namespace longspan::testing
