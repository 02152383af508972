#include "apps/cost_cache.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

namespace fs = std::filesystem;

const plan::PipelineShape kShape = {.ranks = 1, .loops = 2};
constexpr int64_t kTopK = 7;
const CostCacheKey kKey = {{"model", "m 1"}, {"backend", "cpu"}, {"hardware", "a processor"}};

plan::PipelineCost Cost() {
  plan::PipelineCost cost{.shape = kShape, .stages = {}};
  cost.stages.push_back({.per_step = 1.0 / 3, .per_token = 1e-5, .per_pair = 1e-11, .top_k = 7});
  cost.stages.push_back({.per_prefix_token = 2e-9, .per_index_pair = 5e-13, .top_k = 7});
  return cost;
}

class CostCacheTest : public ::testing::Test {
 protected:
  CostCacheTest() {
    std::string name = (fs::temp_directory_path() / "cost-cache-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~CostCacheTest() override { fs::remove_all(folder_); }

  CostCache Cache(const CostCacheKey& key = kKey) const {
    return {folder_ / "new" / "folder", "a model/pp2", key};
  }
  fs::path File() const { return folder_ / "new" / "folder" / "a_model_pp2.json"; }

  fs::path folder_;
};

TEST_F(CostCacheTest, GivesBackWhatItGot) {
  EXPECT_FALSE(Cache().Load(kShape, kTopK));
  Cache().Save(Cost());
  const auto cost = Cache().Load(kShape, kTopK);
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->stages, Cost().stages);
  EXPECT_EQ(std::distance(fs::directory_iterator(File().parent_path()), {}), 1) << "leaves nothing";
}

TEST_F(CostCacheTest, IsForOneKeyAndOneShape) {
  Cache().Save(Cost());
  for (size_t changed = 0; changed < kKey.size(); ++changed) {
    CostCacheKey key = kKey;
    key[changed].second += " else";
    EXPECT_FALSE(Cache(key).Load(kShape, kTopK)) << key[changed].first;
  }
  EXPECT_FALSE(Cache().Load({.ranks = 2, .loops = 2}, kTopK));
  EXPECT_FALSE(Cache().Load(kShape, kTopK + 1));
  EXPECT_FALSE(Cache().Load(kShape, 0));
  EXPECT_TRUE(Cache().Load(kShape, kTopK));
}

TEST_F(CostCacheTest, AStageThatCostsNothingIsNone) {
  plan::PipelineCost cost = Cost();
  cost.stages[1] = {.top_k = kTopK};
  Cache().Save(cost);
  EXPECT_FALSE(Cache().Load(kShape, kTopK));
}

// Each writes a file of its own before it takes the name.
TEST_F(CostCacheTest, ManyMayWriteAtOnce) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 8; ++writer)
    writers.emplace_back([&] {
      for (int i = 0; i < 8; ++i) Cache().Save(Cost());
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(Cache().Load(kShape, kTopK));
  EXPECT_EQ(std::distance(fs::directory_iterator(File().parent_path()), {}), 1) << "leaves nothing";
}

TEST_F(CostCacheTest, ABrokenFileIsNoFile) {
  Cache().Save(Cost());
  std::ifstream in(File());
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {std::string(), std::string("["), std::string("[]"), whole.substr(0, whole.size() / 2),
        with("\"version\": 1", "\"version\": 2"), with("\"key\"", "\"no key\""),
        with("per_step", "per_stop"), with("1e-05", "-1e-05"), with("1e-05", "\"1\""),
        with("1e-05", "1e999"), with("\"top_k\": 7", "\"top_k\": 8"),
        with("\"stages\"", "\"stags\"")}) {
    std::ofstream(File()) << text;
    EXPECT_FALSE(Cache().Load(kShape, kTopK)) << text;
  }
  std::ofstream(File()) << whole;
  EXPECT_TRUE(Cache().Load(kShape, kTopK));
}

TEST_F(CostCacheTest, WhatCannotBeWrittenIsNoError) {
  std::ofstream(folder_ / "new") << "a file in the way";
  Cache().Save(Cost());
  EXPECT_FALSE(Cache().Load(kShape, kTopK));
  const CostCache off({}, "a model", kKey);
  off.Save(Cost());
  EXPECT_FALSE(off.Load(kShape, kTopK));
}

TEST(ProcessorNameTest, IsTheNameOrTheNumbers) {
  const auto name = [](const char* text) {
    std::istringstream stream(text);
    return ProcessorNameIn(stream);
  };
  EXPECT_EQ(name("processor\t: 0\nmodel name\t: A Processor @ 2GHz\n"), "A Processor @ 2GHz");
  EXPECT_EQ(name("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n"
                 "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd85\n"),
            "0x41 0xd4f 0xd85");
  EXPECT_EQ(name("processor\t: 0\n"), "unknown");
}

}  // namespace
}  // namespace longspan::apps
