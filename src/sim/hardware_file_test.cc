#include "sim/hardware_file.h"

#include <fstream>
#include <iterator>

#include <gmock/gmock.h>

namespace longspan::sim {
namespace {

using testing::HasSubstr;

const std::filesystem::path kProfiles = std::filesystem::path(LONGSPAN_SOURCE_DIR) / "hardware";

std::string TextOf(const std::string& name) {
  std::ifstream file(kProfiles / (name + ".json"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string Replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(HardwareFileTest, EveryProfileIsWhatItsNameSays) {
  for (const char* name : {"h20", "h100", "h200", "b200"}) {
    const auto hardware = LoadHardware(name, {kProfiles});
    ASSERT_TRUE(hardware.ok()) << hardware.status().message();
    EXPECT_EQ(hardware->name, name);
    EXPECT_NEAR(hardware->fp8_flops / hardware->bf16_flops, 2, 0.01);
    EXPECT_GT(hardware->nvlink.bytes_per_s, hardware->infiniband.bytes_per_s);
    EXPECT_GT(hardware->infiniband.bytes_per_s, hardware->ethernet.bytes_per_s);
  }
  EXPECT_EQ(LoadHardware("h20", {kProfiles})->memory_bytes, 96e9);
}

// What is taken from the results that the simulator is compared with: two figures, no more.
TEST(HardwareFileTest, TwoFiguresAtMostAreCalibrated) {
  for (const char* name : {"h20", "h100", "h200", "b200"}) {
    const std::string text = TextOf(name);
    int calibrated = 0;
    for (size_t at = text.find("calibrated"); at != std::string::npos;
         at = text.find("calibrated", at + 1))
      ++calibrated;
    EXPECT_LE(calibrated, 2) << name;
    EXPECT_EQ(text.find("published prefills"), std::string::npos) << name;
  }
}

TEST(HardwareFileTest, AFileIsTakenByItsPath) {
  EXPECT_EQ(LoadHardware((kProfiles / "h200.json").string(), {})->name, "h200");
}

TEST(HardwareFileTest, AnUnknownNameIsAnsweredWithTheNamesThereAre) {
  const auto hardware = LoadHardware("h2000", {"/nowhere", kProfiles});
  EXPECT_EQ(hardware.status().code(), base::StatusCode::kNotFound);
  EXPECT_THAT(hardware.status().message(), HasSubstr("b200, h100, h20, h200"));
}

TEST(HardwareFileTest, AFigureNeedsASourceAndSense) {
  const std::string good = TextOf("h20");
  const struct {
    std::string what, with, message;
  } cases[] = {
      {"\"bf16_flops\"", "\"bf16\"", "'bf16_flops' is missing"},
      {"\"value\": 148000000000000.0", "\"value\": -1", "bf16_flops must be above 0"},
      {"\"value\": 148000000000000.0", "\"value\": \"fast\"",
       "'bf16_flops.value' must be a number"},
      {"\"source\"", "\"from\"", "'bf16_flops.source' is missing"},
      {"\"attention\"", "\"attentive\"", "'kernels.attention' is missing"},
      {"\"nvlink\"", "\"copper\"", "'nvlink' is missing"},
  };
  for (const auto& c : cases) {
    const auto hardware = ParseHardware(Replaced(good, c.what, c.with), "cluster.json");
    ASSERT_FALSE(hardware.ok()) << c.message;
    EXPECT_THAT(hardware.status().message(), HasSubstr(c.message));
    EXPECT_THAT(hardware.status().message(), HasSubstr("cluster.json"));
  }
}

}  // namespace
}  // namespace longspan::sim
