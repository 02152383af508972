#include "checkpoint/safetensors.h"

#include <algorithm>
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

#include "checkpoint/test_files.h"
#include "checkpoint/weight_names.h"
#include "tensor/dtype.h"

namespace longspan::checkpoint {
namespace {

using base::StatusCode;
using tensor::Bf16;
using tensor::DType;

constexpr std::string_view kOneWeight =
    R"({"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})";

std::vector<int64_t> Shape(std::initializer_list<int64_t> sizes) { return sizes; }

std::unique_ptr<WeightSource> OpenOrFail(const std::filesystem::path& folder) {
  auto source = OpenSafetensors(folder);
  EXPECT_TRUE(source.ok()) << source.status().message();
  return source.ok() ? std::move(source).value() : nullptr;
}

TEST(SafetensorsTest, ReadsTheEmbeddedModel) {
  const auto source = OpenOrFail(SourcePath("models/tiny-qwen3-moe"));
  ASSERT_NE(source, nullptr);
  EXPECT_TRUE(source->Has(kHeadName));
  EXPECT_FALSE(source->Has("model.layers.4.input_layernorm.weight"));
  const auto norm = source->Read(LayerName(3, "self_attn.q_norm.weight"), Shape({128}));
  ASSERT_TRUE(norm.ok()) << norm.status().message();
  EXPECT_EQ(norm->dtype(), DType::kBf16);
  for (int i = 0; i < 128; ++i) EXPECT_NEAR(tensor::ToFloat(norm->data<Bf16>()[i]), 1, 3) << i;
  EXPECT_EQ(source->bytes_read(), 256);
  ASSERT_TRUE(source->Read(kEmbeddingName, Shape({1024, 256})).ok());
  EXPECT_EQ(source->bytes_read(), 256 + 1024 * 256 * 2);
}

TEST(SafetensorsTest, ReadsGoldenFiles) {
  auto file = SafetensorsFile::Open(SourcePath("tests/data/golden/rand-llama.golden.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->names().size(), 12u);
  EXPECT_EQ(file->names().front(), "n1.hidden_last");
  const auto ids = file->Read("n64.ids");
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  ASSERT_EQ(ids->dtype(), DType::kI32);
  ASSERT_EQ(ids->elements(), 64);
  EXPECT_TRUE(std::all_of(ids->data<int32_t>(), ids->data<int32_t>() + 64,
                          [](int32_t id) { return id >= 0 && id < 320; }));
  const auto logits = file->Read("n64.logits", Shape({8, 320}));
  EXPECT_TRUE(logits.ok()) << logits.status().message();
}

TEST(SafetensorsTest, WrongShapesNameTensorFileAndBothShapes) {
  const TestFolder folder;
  folder.Write("model.safetensors", SafetensorsBytes(kOneWeight, 12));
  const auto source = OpenOrFail(folder.path());
  const auto view = source->Read("w", Shape({3, 2}));
  ExpectSentence(view.status(), StatusCode::kInvalidArgument,
                 folder.Path("model.safetensors").native() +
                     ": tensor 'w' has the shape [2, 3], but the model needs [3, 2]");
  ExpectSentence(source->Read("v", Shape({1})).status(), StatusCode::kNotFound,
                 "model.safetensors has no tensor 'v'");
  EXPECT_EQ(source->bytes_read(), 0);
}

TEST(SafetensorsTest, AlignsWhatTheFileDoesNot) {
  const TestFolder folder;
  // 57 bytes of header: the data starts at an odd byte.
  std::string header = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  header.resize(57, ' ');
  auto file = SafetensorsFile::Open(folder.Write("odd", SafetensorsBytes(header, 12)));
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (int round = 0; round < 2; ++round) {
    const auto view = file->Read("w");
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->raw()) % 4, 0u);
    EXPECT_EQ(std::memcmp(view->raw(), "\0\1\2\3\4\5\6\7\10\11\12\13", 12), 0);
    file->Release("w");
  }
}

TEST(SafetensorsTest, ScalarsCountAsOneElement) {
  const TestFolder folder;
  auto file = SafetensorsFile::Open(folder.Write(
      "scalar", SafetensorsBytes(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}} )", 4)));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto view = file->Read("s", Shape({1}));
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->elements(), 1);
  EXPECT_FALSE(file->Read("s", Shape({1, 1})).ok());
}

TEST(SafetensorsTest, RefusesTypesAndRanksOnlyWhenRead) {
  const TestFolder folder;
  folder.Write("model.safetensors",
               SafetensorsBytes(R"({"f8":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]},)"
                                R"("i":{"dtype":"I32","shape":[1],"data_offsets":[4,8]},)"
                                R"("r":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[8,12]}})",
                                12));
  const auto source = OpenOrFail(folder.path());
  ExpectSentence(source->Read("f8", Shape({4})).status(), StatusCode::kUnimplemented,
                 "tensor 'f8' has the element type 'F8_E5M2'");
  ExpectSentence(source->Read("i", Shape({1})).status(), StatusCode::kUnimplemented,
                 "tensor 'i' has the element type i32; weights are bf16, f16, f32 or f8_e4m3");
  ExpectSentence(source->Read("r", Shape({1, 1, 1, 1, 1})).status(), StatusCode::kUnimplemented,
                 "tensor 'r' has 5 dimensions; at most 4");
}

TEST(SafetensorsTest, NoticesThatAFileHasChanged) {
  const TestFolder folder;
  const auto path = folder.Write("w", SafetensorsBytes(kOneWeight, 12));
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path, 20);
  ExpectSentence(file->Read("w").status(), StatusCode::kDataLoss, "has changed from");
}

TEST(SafetensorsTest, ThingsThatAreNoFile) {
  const TestFolder folder;
  ExpectSentence(SafetensorsFile::Open(folder.Path("none")).status(), StatusCode::kNotFound,
                 "there is no file");
  ExpectSentence(SafetensorsFile::Open(folder.path()).status(), StatusCode::kInvalidArgument,
                 "is not a file");
  const auto pipe = folder.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectSentence(SafetensorsFile::Open(pipe).status(), StatusCode::kInvalidArgument,
                 "is not a file");
  ExpectSentence(SafetensorsFile::Open(folder.Write("empty", "")).status(), StatusCode::kDataLoss,
                 "has 0 bytes, too few");
}

// The pages of a mapping that are in this process's memory, by /proc/self/smaps.
int64_t ResidentKib(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  int64_t total = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) inside = line.ends_with(path);
    if (inside && line.starts_with("Rss:")) total += std::stoll(line.substr(4));
  }
  return total;
}

TEST(SafetensorsTest, ReleaseDropsMappedPages) {
  const TestFolder folder;
  constexpr int64_t kElements = 1 << 20;
  const std::vector<float> ones(kElements, 1.0f);
  const auto path = folder.Path("big");
  const NamedTensor tensor{"w", tensor::ConstView(ones.data(), DType::kF32, {kElements})};
  ASSERT_TRUE(WriteSafetensors(path, {&tensor, 1}).ok());
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  for (int round = 0; round < 2; ++round) {
    const auto view = file->Read("w");
    ASSERT_TRUE(view.ok());
    const float* data = view->data<float>();
    float sum = 0;
    for (int64_t i = 0; i < kElements; ++i) sum += data[i];
    EXPECT_EQ(sum, static_cast<float>(kElements));
    EXPECT_GE(ResidentKib(path.native()), 4000);
    file->Release("w");
    EXPECT_LE(ResidentKib(path.native()), 300);
  }
  file->Release("unknown");
}

class ShardTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("one.safetensors", SafetensorsBytes(kOneWeight, 12));
    folder_.Write("two.safetensors",
                  SafetensorsBytes(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
    WriteIndex(R"({"w":"one.safetensors","v":"two.safetensors"})");
  }
  void WriteIndex(std::string_view weight_map) {
    folder_.Write("model.safetensors.index.json",
                  fmt::format(R"({{"metadata":{{"total_size":20}},"weight_map":{}}})", weight_map));
  }
  base::Status OpenStatus() { return OpenSafetensors(folder_.path()).status(); }

  TestFolder folder_;
};

TEST_F(ShardTest, ReadsEachTensorFromItsShard) {
  const auto source = OpenOrFail(folder_.path());
  ASSERT_NE(source, nullptr);
  EXPECT_TRUE(source->Has("v"));
  EXPECT_FALSE(source->Has("x"));
  EXPECT_TRUE(source->Read("w", Shape({2, 3})).ok());
  const auto v = source->Read("v", Shape({2}));
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(v->dtype(), DType::kF32);
  EXPECT_EQ(source->bytes_read(), 20);
  source->Release("v");
  source->Release("x");
  ExpectSentence(source->Read("x", Shape({2})).status(), StatusCode::kNotFound, "no tensor 'x'");
}

TEST_F(ShardTest, OpensOnlyTheShardsThatItNeeds) {
  folder_.Write("two.safetensors", "broken");
  const auto source = OpenOrFail(folder_.path());
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(ResidentKib("one.safetensors"), 0);
  EXPECT_TRUE(source->Read("w", Shape({2, 3})).ok());
  ExpectSentence(source->Read("v", Shape({2})).status(), StatusCode::kDataLoss,
                 "two.safetensors has 6 bytes, too few");
}

TEST_F(ShardTest, PrefersTheSingleFile) {
  folder_.Write("model.safetensors", SafetensorsBytes(kOneWeight, 12));
  const auto source = OpenOrFail(folder_.path());
  EXPECT_TRUE(source->Has("w"));
  EXPECT_FALSE(source->Has("v"));
}

TEST_F(ShardTest, ReadsThroughSymbolicLinks) {
  // As the Hub's own cache lays out its snapshots.
  std::filesystem::create_directory(folder_.Path("blobs"));
  std::filesystem::rename(folder_.Path("one.safetensors"), folder_.Path("blobs/0"));
  std::filesystem::create_symlink("blobs/0", folder_.Path("one.safetensors"));
  EXPECT_TRUE(OpenOrFail(folder_.path())->Read("w", Shape({2, 3})).ok());
}

TEST_F(ShardTest, BrokenIndexesAreNamed) {
  WriteIndex(R"({"w":"three.safetensors"})");
  ExpectSentence(OpenStatus(), StatusCode::kNotFound, "'three.safetensors', which is missing");
  std::filesystem::create_directory(folder_.Path("sub"));
  folder_.Write("sub/s.safetensors", SafetensorsBytes(kOneWeight, 12));
  for (const std::string_view leaving : {"../one.safetensors", "/etc/passwd", "", ".", "..",
                                         "sub/s.safetensors", "a\\\\b", "one.safetensors\\u0000"}) {
    SCOPED_TRACE(leaving);
    WriteIndex(fmt::format(R"({{"w":"{}"}})", leaving));
    ExpectSentence(OpenStatus(), StatusCode::kDataLoss, "which is not a file beside the index");
  }
  WriteIndex(R"({"w":3})");
  ExpectSentence(OpenStatus(), StatusCode::kDataLoss, "names 3 as the file of tensor 'w'");
  WriteIndex("[]");
  ExpectSentence(OpenStatus(), StatusCode::kDataLoss, "has no object 'weight_map'");
  WriteIndex(R"({"w":"one.safetensors","w":"two.safetensors"})");
  ExpectSentence(OpenStatus(), StatusCode::kDataLoss, "has the key 'w' twice");
  WriteIndex("{");
  ExpectSentence(OpenStatus(), StatusCode::kDataLoss, "is not valid JSON");
}

TEST_F(ShardTest, NoticesAnIndexThatDisagreesWithItsShard) {
  WriteIndex(R"({"v":"one.safetensors"})");
  ExpectSentence(OpenOrFail(folder_.path())->Read("v", Shape({2})).status(), StatusCode::kDataLoss,
                 "one.safetensors has no tensor 'v', though model.safetensors.index.json says so");
}

TEST(SafetensorsTest, FoldersWithoutWeights) {
  const TestFolder folder;
  ExpectSentence(OpenSafetensors(folder.path()).status(), StatusCode::kNotFound,
                 "has neither model.safetensors nor model.safetensors.index.json");
  ExpectSentence(OpenSafetensors(folder.Path("none")).status(), StatusCode::kNotFound,
                 "there is no model folder");
}

TEST(WriteSafetensorsTest, WritesWhatIsReadBack) {
  const TestFolder folder;
  const std::vector<float> logits = {1.5f, -2, 0, 1e30f, 5, 6};
  const std::vector<int32_t> positions = {3, 9, 27};
  const std::vector<uint8_t> flags = {1, 0, 1};
  const std::vector<int64_t> wide = {int64_t{1} << 40};
  const NamedTensor tensors[] = {
      {"flags", tensor::ConstView(flags.data(), DType::kU8, {3})},
      {"logits", tensor::ConstView(logits.data(), DType::kF32, {3, 2})},
      {"quote\"d \u00e9", tensor::ConstView(positions.data(), DType::kI32, {3})},
      {"wide", tensor::ConstView(wide.data(), DType::kI64, {1, 1, 1, 1})},
  };
  const auto path = folder.Write("out.safetensors", "what was there");
  const base::Status status = WriteSafetensors(path, tensors);
  ASSERT_TRUE(status.ok()) << status.message();
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->names(), testing::ElementsAre("wide", "logits", "quote\"d \u00e9", "flags"));
  for (const NamedTensor& tensor : tensors) {
    const auto view = file->Read(tensor.name);
    ASSERT_TRUE(view.ok()) << view.status().message();
    ASSERT_EQ(view->rank(), tensor.view.rank());
    ASSERT_EQ(view->bytes(), tensor.view.bytes());
    EXPECT_EQ(view->dtype(), tensor.view.dtype());
    EXPECT_EQ(std::memcmp(view->raw(), tensor.view.raw(), static_cast<size_t>(view->bytes())), 0);
  }
  // Nothing but the file itself is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteSafetensorsTest, RefusesPlacesThatAreNoFile) {
  const TestFolder folder;
  ExpectSentence(WriteSafetensors(folder.path(), {}), StatusCode::kInvalidArgument,
                 "is not a file");
  ExpectSentence(WriteSafetensors("/dev/null", {}), StatusCode::kInvalidArgument, "is not a file");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  ExpectSentence(WriteSafetensors(folder.Path("no/such/folder"), {}), StatusCode::kInternal,
                 "cannot create");
}

// Exits with 0 where the write fails because the file may not grow beyond one page.
[[noreturn]] void WriteWithoutSpace(const std::filesystem::path& path) {
  const std::vector<float> zeros(1 << 16);
  const NamedTensor tensor{"z", tensor::ConstView(zeros.data(), DType::kF32, {1 << 16})};
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
  setrlimit(RLIMIT_FSIZE, &limit);
  const base::Status status = WriteSafetensors(path, {&tensor, 1});
  std::_Exit(status.code() == StatusCode::kInternal ? 0 : 1);
}

TEST(WriteSafetensorsTest, AFullDiskLeavesWhatWasThere) {
  const TestFolder folder;
  const auto path = folder.Write("out", "before");
  EXPECT_EXIT(WriteWithoutSpace(path), testing::ExitedWithCode(0), "");
  EXPECT_EQ(ReadAll(path), "before");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(SafetensorsSourceTest, AWindowIsReadAlone) {
  const TestFolder folder;
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const NamedTensor tensors[] = {
      {"w", tensor::ConstView(values.data(), tensor::DType::kF32, {4, 6})}};
  ASSERT_TRUE(WriteSafetensors(folder.Path("model.safetensors"), tensors).ok());
  const auto source = std::move(OpenSafetensors(folder.path()).value());
  const int64_t shape[] = {4, 6};
  const auto window = source->ReadWindow("w", shape, {1, 2, 3, 2});
  ASSERT_TRUE(window.ok()) << window.status().message();
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < 2; ++column)
      EXPECT_EQ(window->row<float>(row)[column], static_cast<float>((1 + row) * 6 + 3 + column));
  EXPECT_EQ(source->bytes_read(), 4 * 4);
  const int64_t other[] = {6, 4};
  EXPECT_EQ(source->ReadWindow("w", other, {0, 1, 0, 1}).status().code(),
            base::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace longspan::checkpoint
