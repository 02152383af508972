// Whatever a user gives wrongly: one sentence, within seconds, nothing left running.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"

namespace longspan::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char* const kTinyModel = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";

// Expects the failure and returns its sentence.
std::string Refusal(const std::vector<std::string>& arguments, int exit_code,
                    const RunOptions& options = {}) {
  const Outcome outcome = RunProgram(arguments, options);
  const std::string command = ::testing::PrintToString(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << command << '\n' << outcome.errors;
  EXPECT_EQ(outcome.output, "") << command;
  EXPECT_THAT(outcome.errors, StartsWith("longspan: ")) << command;
  EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  EXPECT_LT(outcome.errors.size(), 400u) << outcome.errors;
  EXPECT_LT(outcome.seconds, 5) << command;
  EXPECT_TRUE(outcome.left.empty()) << command;
  return outcome.errors;
}

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> Prompt(const std::vector<std::string>& more) {
  return With({"generate", "--prompt", "hi"}, more);
}

TEST(BadFlagsTest, NonsenseValuesAreWrongUsage) {
  const std::vector<std::vector<std::string>> flags = {{"--threads", "0"},
                                                       {"--threads", "many"},
                                                       {"--pp-size", "-1"},
                                                       {"--pp-size", "0"},
                                                       {"--pp-size", "2.5"},
                                                       {"--page-size", "x"},
                                                       {"--page-size", "0"},
                                                       {"--chunk-policy", "foo"},
                                                       {"--dynamic-chunking-smooth-factor", "1.5"},
                                                       {"--chunked-prefill-size", "0"},
                                                       {"--dtype", "int3"},
                                                       {"--kv-cache-dtype", "int3"},
                                                       {"--backend", "abacus"},
                                                       {"--load-format", "tape"},
                                                       {"--mem-fraction-static", "2"},
                                                       {"--mem-fraction-static", "nan"},
                                                       {"--max-total-tokens", "0"},
                                                       {"--watchdog-timeout", "0"},
                                                       {"--peer-timeout", "0.5"},
                                                       {"--peer-timeout", "nan"},
                                                       {"--context-length", "0"},
                                                       {"--context-length", "99999999999999999999"},
                                                       {"--max-running-requests", "0"},
                                                       {"--max-queued-requests", "-2"},
                                                       {"--max-tokens", "many"},
                                                       {"--temperature", "-1"},
                                                       {"--temperature", "nan"},
                                                       {"--top-p", "2"},
                                                       {"--top-p", "nan"},
                                                       {"--min-p", "-1"},
                                                       {"--top-k", "-3"},
                                                       {"--repetition-penalty", "0"},
                                                       {"--frequency-penalty", "nan"},
                                                       {"--presence-penalty", "inf"},
                                                       {"--logprobs", "-1"},
                                                       {"--stop-token-ids", "x"},
                                                       {"--log-level", "loud"},
                                                       {"--cp-strategy", "snake"},
                                                       {"--frobnicate"},
                                                       {"--prompt-file", "also-a-prompt.txt"}};
  for (const auto& more : flags) Refusal(Prompt(more), 2);
  Refusal(Prompt({}), 2, {.environment = {{"LONGSPAN_PP_SIZE", "none"}}});
}

TEST(BadFlagsTest, UnknownCommandsAndMissingArguments) {
  EXPECT_THAT(Refusal({"frobnicate"}, 2), HasSubstr("there is no command 'frobnicate'"));
  Refusal({}, 2);
  Refusal({"generate"}, 2);
  Refusal({"score"}, 2);
  Refusal({"tokenize"}, 2);
  Refusal({"detokenize"}, 2);
  Refusal({"rank"}, 2);
  Refusal({"rank", "--leader", "0"}, 1);
}

TEST(BadFlagsTest, WhatIsNotBuiltYetSaysSo) {
  EXPECT_THAT(Refusal(Prompt({"--kv-cache-dtype", "fp8"}), 2), HasSubstr("not built yet"));
}

TEST(BadFlagsTest, EmulatedRanksNeedAProfile) {
  EXPECT_THAT(Refusal(Prompt({"--backend", "emulated"}), 2), HasSubstr("needs --hardware"));
}

TEST(BadFlagsTest, HostsMustBeNumberedAndFindEachOther) {
  EXPECT_THAT(Refusal(Prompt({"--node-rank", "1"}), 2), HasSubstr("not below --nnodes 1"));
  EXPECT_THAT(Refusal(Prompt({"--nnodes", "2", "--pp-size", "2"}), 2),
              HasSubstr("needs --dist-init-addr"));
  const auto at = [](const char* address, const char* stages) {
    return Prompt({"--nnodes", "2", "--dist-init-addr", address, "--pp-size", stages});
  };
  EXPECT_THAT(Refusal(at("localhost", "2"), 2), HasSubstr("HOST:PORT"));
  EXPECT_THAT(Refusal(at("localhost:0", "2"), 2), HasSubstr("port above 0"));
  EXPECT_THAT(Refusal(at("localhost:30001", "1"), 2), HasSubstr("--pp-size 2 or more"));
  EXPECT_THAT(Refusal(at("192.0.2.1:30001", "2"), 1), HasSubstr("an address of this host"));
}

TEST(BadFlagsTest, WhatTheModelCannotDo) {
  EXPECT_THAT(Refusal(Prompt({"--pp-size", "5"}), 1), HasSubstr("4 layers"));
  EXPECT_THAT(Refusal(Prompt({"--pp-size", "2", "--virtual-stages", "3"}), 1),
              HasSubstr("use --virtual-stages 2 or less"));
  EXPECT_THAT(Refusal(Prompt({"--tp", "3"}), 1), HasSubstr("8 attention heads: use --tp-size 2"));
  EXPECT_THAT(Refusal(Prompt({"--context-length", "100000000"}), 1), HasSubstr("40960"));
  EXPECT_THAT(Refusal(Prompt({"--pp-size", "2", "--pp-layer-partition", "1,2"}), 1),
              HasSubstr("sum to 4"));
  Refusal(Prompt({"--pp-layer-partition", "x"}), 1);
}

TEST(BadPromptTest, IdsTextsAndConversations) {
  const TemporaryFolder folder;
  const auto generate = [](const std::string& file) {
    return std::vector<std::string>{"generate", "--max-tokens", "2", "--ids-file", file};
  };
  const std::vector<std::string> contents = {
      "",     "[",         "xx",      "[1,2.5]", "[\"1\"]", "[99999999999]", "[5000]",
      "[-1]", "{\"a\":1}", "[[1],2]", "[]",      "[[]]",    "[[1,2],[]]",    "[[1,2],[5000]]"};
  for (const std::string& content : contents)
    for (const char* stages : {"1", "2"})
      Refusal(With(generate(folder.Write("ids.json", content)), {"--pp-size", stages}), 1);
  Refusal(generate("/none/ids.json"), 1);
  Refusal(generate(folder.path()), 1);

  const std::string longer = json(std::vector<int>(100, 1)).dump();
  EXPECT_THAT(
      Refusal(With(generate(folder.Write("long.json", longer)), {"--context-length", "100"}), 1),
      HasSubstr("the context 100"));
  EXPECT_THAT(
      Refusal(With(generate(folder.Write("long.json", longer)), {"--max-total-tokens", "64"}), 1),
      HasSubstr("at most 64 tokens fit"));

  EXPECT_THAT(Refusal({"generate", "--prompt", ""}, 1), HasSubstr("empty"));
  EXPECT_THAT(Refusal({"generate", "--prompt", "", "--pp-size", "2"}, 1), HasSubstr("empty"));
  Refusal({"generate", "--prompt-file", "/none"}, 1);
  for (const char* chat : {"", "[]", R"({"messages":[]})", R"({"messages":3})",
                           R"({"messages":[{"role":"user"}]} trailing)"}) {
    const std::string file = folder.Write("chat.json", chat);
    Refusal({"generate", "--chat", file}, 1);
    Refusal({"tokenize", "--chat", file}, 1);
  }
  EXPECT_THAT(Refusal({"detokenize", "--ids-file", folder.Write("ids.json", "[5000]")}, 1),
              HasSubstr("5000"));
}

TEST(BadPromptTest, ScorePositionsAndFiles) {
  const TemporaryFolder folder;
  const std::string ids = folder.Write("ids.json", "[1,2,3]");
  for (const char* positions : {"3", "-4", "x", "", "1;2"})
    Refusal({"score", "--ids-file", ids, "--positions", positions}, 2);
  Refusal({"score", "--ids-file", ids, "--positions", "0", "--hidden-out", "x"}, 2);
  Refusal({"score", "--ids-file", ids, "--logits-out", "/none/x"}, 1);
  Refusal({"score", "--ids-file", ids, "--logits-out", folder.path()}, 1);
  Refusal({"score", "--ids-file", folder.Write("two.json", "[[1],[2]]")}, 1);
  Refusal({"score", "--ids-file", folder.Write("none.json", "[]")}, 1);
}

TEST(NoMemoryTest, IsRefusedWithWhatFits) {
  for (const char* stages : {"1", "2"}) {
    EXPECT_THAT(Refusal(Prompt({"--max-total-tokens", "100000000000", "--pp-size", stages}), 1),
                HasSubstr("ask for at most"));
  }
}

// Wherever the limit strikes: libraries need about 45 MB, the whole about 400.
TEST(NoMemoryTest, AnyLimitOfTheAddressSpaceEndsWithASentence) {
  for (size_t mib = 72; mib <= 300; mib += 24)
    for (const char* stages : {"1", "2"})
      Refusal(Prompt({"--pp-size", stages, "--max-tokens", "1"}), 1, {.most_bytes = mib << 20});
}

// A copy of a model to be broken.
class BadModelTest : public ::testing::Test {
 protected:
  BadModelTest() {
    for (const auto& entry : fs::directory_iterator(kTinyModel))
      fs::copy(entry.path(), model() / entry.path().filename());
  }

  const fs::path& model() const { return folder_.path(); }

  std::string Read(const std::string& name) const {
    std::ifstream file(model() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Changes the JSON header of the weights; the tensors stay.
  template <class Change>
  void ChangeHeader(const Change& change) const {
    const std::string bytes = Read("model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    json header = json::parse(bytes.substr(sizeof length, length));
    change(header);
    const std::string text = header.dump();
    const uint64_t new_length = text.size();
    std::string changed(sizeof length, '\0');
    std::memcpy(changed.data(), &new_length, sizeof new_length);
    folder_.Write("model.safetensors", changed + text + bytes.substr(sizeof length + length));
  }

  template <class Change>
  void ChangeConfig(const Change& change) const {
    json config = json::parse(Read("config.json"));
    change(config);
    folder_.Write("config.json", config.dump());
  }

  // What `generate` says with it, in one stage and, where asked, the same in two.
  std::string Sentence(bool stages = true) const {
    const auto generate = [&](const char* count) {
      return Refusal(
          Prompt({"--model-path", model().string(), "--max-tokens", "1", "--pp-size", count}), 1);
    };
    const std::string one = generate("1");
    if (stages) {
      EXPECT_EQ(generate("2"), one);
    }
    return one;
  }

  TemporaryFolder folder_;
};

constexpr const char* kLastLayerTensor = "model.layers.3.self_attn.o_proj.weight";

TEST_F(BadModelTest, TheCopyWorks) {
  EXPECT_EQ(RunProgram(Prompt({"--model-path", model().string(), "--max-tokens", "1"})).exit_code,
            0);
}

TEST_F(BadModelTest, NoFolder) {
  EXPECT_THAT(Refusal(Prompt({"--model-path", "/none"}), 1), HasSubstr("no folder '/none'"));
  EXPECT_THAT(Refusal(Prompt({"--model-path", (model() / "config.json").string()}), 1),
              HasSubstr("is not a folder"));
  Refusal({"tokenize", "--text", "x", "--model-path", "/none"}, 1);
}

TEST_F(BadModelTest, AnUnknownArchitecture) {
  ChangeConfig([](json& config) { config["architectures"] = {"TuringMachineForCausalLM"}; });
  EXPECT_THAT(Sentence(), HasSubstr("TuringMachineForCausalLM"));
}

TEST_F(BadModelTest, ABrokenConfiguration) {
  folder_.Write("config.json", "{");
  EXPECT_THAT(Sentence(), HasSubstr("config.json"));
  fs::remove(model() / "config.json");
  EXPECT_THAT(Sentence(), HasSubstr("config.json"));
  for (const char* name :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    for (const json& value : {json(0), json(-1), json("many"), json(1e300), json(nullptr)}) {
      fs::copy_file(fs::path(kTinyModel) / "config.json", model() / "config.json",
                    fs::copy_options::overwrite_existing);
      ChangeConfig([&](json& config) { config[name] = value; });
      Sentence(/*stages=*/false);
    }
  }
}

TEST_F(BadModelTest, AMissingTensor) {
  // Renamed, so that the file itself stays whole.
  ChangeHeader([](json& header) {
    header["other"] = header[kLastLayerTensor];
    header.erase(kLastLayerTensor);
  });
  EXPECT_THAT(Sentence(), HasSubstr(kLastLayerTensor));
}

TEST_F(BadModelTest, AWronglyShapedTensor) {
  ChangeHeader([](json& header) {
    auto& shape = header[kLastLayerTensor]["shape"];
    shape = {shape[0].get<int>() * shape[1].get<int>() / 2, 2};
  });
  EXPECT_THAT(Sentence(), HasSubstr(kLastLayerTensor));
}

TEST_F(BadModelTest, AnOverlappingTensor) {
  ChangeHeader([](json& header) {
    auto& offsets = header[kLastLayerTensor]["data_offsets"];
    offsets = {offsets[0].get<int64_t>() - 2, offsets[1].get<int64_t>() - 2};
  });
  EXPECT_THAT(Sentence(), HasSubstr("model.safetensors"));
}

TEST_F(BadModelTest, ATruncatedFile) {
  const auto size = fs::file_size(model() / "model.safetensors");
  for (const std::uintmax_t kept :
       {size - 1, size / 2, std::uintmax_t{100}, std::uintmax_t{4}, std::uintmax_t{0}}) {
    fs::resize_file(model() / "model.safetensors", kept);
    EXPECT_THAT(Sentence(), HasSubstr("model.safetensors")) << kept;
  }
  fs::remove(model() / "model.safetensors");
  EXPECT_THAT(Sentence(), HasSubstr("safetensors"));
}

TEST_F(BadModelTest, ABrokenTokenizer) {
  for (const std::string& content : {std::string("{"), std::string(), std::string("[]"),
                                     Read("tokenizer.json").substr(0, 5000)}) {
    folder_.Write("tokenizer.json", content);
    EXPECT_THAT(Sentence(/*stages=*/false), HasSubstr("tokenizer.json"));
    Refusal({"tokenize", "--text", "x", "--model-path", model().string()}, 1);
  }
  fs::remove(model() / "tokenizer.json");
  EXPECT_THAT(Sentence(/*stages=*/false), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace longspan::testing
