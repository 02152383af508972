#include "apps/step_costs.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

namespace fs = std::filesystem;

class StepCostsTest : public ::testing::Test {
 protected:
  StepCostsTest() {
    std::string name = (fs::temp_directory_path() / "step-costs-XXXXXX").string();
    flags_.cost_cache = mkdtemp(name.data());
    flags_.model_path = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
    flags_.backend = "cpu";
    flags_.mesh.cp = 2;
    auto setup = ResolveSetup(flags_);
    EXPECT_TRUE(setup.ok()) << setup.status().message();
    if (setup.ok()) setup_ = std::move(setup).value();
  }
  ~StepCostsTest() override { fs::remove_all(flags_.cost_cache); }

  EngineFlags flags_;
  EngineSetup setup_;
};

TEST_F(StepCostsTest, WhatWasLearntIsForOneMachineAndOneSetOfFlags) {
  const plan::PipelineCost cost = AssumedCost(flags_, setup_);
  const auto loads = [&](const EngineFlags& flags, const EngineSetup& setup) {
    return CostCacheOf(flags, setup).Load(setup_.shape, 0).has_value();
  };
  for (const bool on_gpu : {false, true}) {
    setup_.on_gpu = on_gpu;
    CostCacheOf(flags_, setup_).Save(cost);
    EXPECT_TRUE(loads(flags_, setup_));
    const auto refuses = [&](const std::function<void(EngineFlags&, EngineSetup&)>& change) {
      EngineFlags flags = flags_;
      EngineSetup setup = setup_;
      change(flags, setup);
      return !loads(flags, setup);
    };
    EXPECT_TRUE(refuses([](auto& flags, auto&) { flags.cp_strategy = "zigzag"; }));
    EXPECT_TRUE(refuses([](auto& flags, auto&) { flags.kv_placement = "sharded"; }));
    EXPECT_TRUE(refuses([](auto& flags, auto&) { flags.page_size = 32; }));
    EXPECT_TRUE(refuses([](auto& flags, auto&) { flags.nodes = 2; }));
    EXPECT_TRUE(refuses([](auto& flags, auto&) { flags.load_format = "dummy"; }));
    EXPECT_TRUE(refuses([](auto& flags, auto&) { flags.deterministic = true; }));
    EXPECT_TRUE(refuses([](auto&, auto& setup) { setup.threads += 1; }));
    EXPECT_TRUE(refuses([](auto&, auto& setup) { setup.kv_cache = tensor::DType::kF32; }));
    EXPECT_TRUE(refuses([&](auto&, auto& setup) { setup.on_gpu = !on_gpu; }));
    EXPECT_EQ(refuses([](auto& flags, auto&) { flags.gpu_id_step = 0; }), on_gpu);
    EXPECT_EQ(refuses([](auto& flags, auto&) { flags.base_gpu_id = 1; }), on_gpu);
    EXPECT_FALSE(refuses([](auto& flags, auto&) { flags.max_running_requests = 3; }));
  }
}

TEST(ProfileOfGpuTest, IsTheOneOfItsName) {
  const auto name = [](const char* gpu) {
    const auto profile = ProfileOfGpu(gpu);
    return profile ? profile->name : "none";
  };
  EXPECT_EQ(name("NVIDIA H200"), "h200");
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(name("NVIDIA H20-3e"), "h20");
  EXPECT_EQ(name("NVIDIA RTX 6000"), "none");
  EXPECT_EQ(name(""), "none");
}

TEST_F(StepCostsTest, WithoutAFolderNothingIsKept) {
  flags_.cost_cache = "off";
  CostCacheOf(flags_, setup_).Save(AssumedCost(flags_, setup_));
  EXPECT_FALSE(CostCacheOf(flags_, setup_).Load(setup_.shape, 0));
}

}  // namespace
}  // namespace longspan::apps
