// How much memory is left, read from made-up file systems; copies.
#include "tensor/host_memory.h"

#include <array>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace longspan::tensor {
namespace {

namespace fs = std::filesystem;

class AvailableHostBytesTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / (std::string("host_memory_") + test->name());
    fs::remove_all(root_);
    Write("proc/meminfo", "MemTotal: 4000 kB\nMemFree: 1 kB\nMemAvailable:    3000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
};

TEST_F(AvailableHostBytesTest, WithoutGroupsTheMachineDecides) {
  EXPECT_EQ(AvailableHostBytes(root_), 3000 * 1024);
}

TEST_F(AvailableHostBytesTest, VersionTwoCountsTheTightestAncestor) {
  Write("proc/self/cgroup", "0::/a/b\n");
  Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("sys/fs/cgroup/a/b/memory.current", "700\n");
  Write("sys/fs/cgroup/a/memory.max", "10000\n");
  Write("sys/fs/cgroup/a/memory.current", "9000\n");
  Write("sys/fs/cgroup/a/memory.stat", "anon 5000\ninactive_file 400\nactive_file 800\n");
  EXPECT_EQ(AvailableHostBytes(root_), 10000 - 9000 + 400);
}

TEST_F(AvailableHostBytesTest, VersionOneInsideAContainer) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/hidden/by/the/namespace\n0::/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(AvailableHostBytes(root_), 1500000);
}

TEST_F(AvailableHostBytesTest, AFullGroupHasNothingLeft) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "1000\n");
  Write("sys/fs/cgroup/memory.current", "1500\n");
  EXPECT_EQ(AvailableHostBytes(root_), 0);
}

TEST(HostMemoryTest, ThisMachineHasSomeMemory) { EXPECT_GT(AvailableHostBytes(), 1 << 20); }

TEST(HostMemoryTest, CopiesDenseTensorsOnly) {
  std::array<float, 8> data = {};
  std::array<float, 4> values = {1, 2, 3, 4};
  const View matrix(data.data(), DType::kF32, {2, 4});
  EXPECT_TRUE(CopyIn(std::as_bytes(std::span(values)), matrix.Rows(1, 1)).ok());
  EXPECT_EQ(data[4], 1);
  EXPECT_EQ(data[7], 4);
  std::array<float, 4> back = {};
  EXPECT_TRUE(CopyOut(matrix.Rows(1, 1), std::as_writable_bytes(std::span(back))).ok());
  EXPECT_EQ(back, values);
  EXPECT_FALSE(CopyIn(std::as_bytes(std::span(values)), matrix).ok());
  EXPECT_FALSE(CopyIn(std::as_bytes(std::span(values)), matrix.Columns(0, 2)).ok());
  EXPECT_FALSE(CopyOut(matrix.Columns(1, 2), std::as_writable_bytes(std::span(back))).ok());
}

TEST(HostMemoryTest, WidensRowsExactly) {
  const std::array<Bf16, 4> bf16 = {Bf16{0x3f80}, Bf16{0xc000}, Bf16{0x0001}, Bf16{0x7f7f}};
  const std::array<uint16_t, 4> half = {0x3c00, 0xc000, 0x0001, 0x7bff};
  std::array<float, 2> out = {};
  WidenRow(ConstView(bf16.data(), DType::kBf16, {2, 2}), 1, out.data());
  EXPECT_EQ(out, (std::array<float, 2>{0x1p-133f, 0x1.fep127f}));
  WidenRow(ConstView(half.data(), DType::kF16, {2, 2}), 1, out.data());
  EXPECT_EQ(out, (std::array<float, 2>{0x1p-24f, 65504.0f}));
  // A column slice keeps its stride.
  WidenRow(ConstView(half.data(), DType::kF16, {2, 2}).Columns(1, 1), 0, out.data());
  EXPECT_EQ(out[0], -2.0f);
}

}  // namespace
}  // namespace longspan::tensor
