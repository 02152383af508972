#include "checkpoint/hub_config.h"

#include <random>

#include <nlohmann/json.hpp>

#include "checkpoint/test_files.h"

namespace longspan::checkpoint {
namespace {

using base::StatusCode;
using nlohmann::json;

json BaseConfig() {
  return json::parse(R"({
    "architectures": ["TestForCausalLM"], "vocab_size": 320, "hidden_size": 96,
    "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
    "hidden_act": "silu", "eos_token_id": 2})");
}

// The config with some keys changed; a null removes one as far as readers can tell.
std::string With(const char* changes) {
  json config = BaseConfig();
  config.update(json::parse(changes));
  return config.dump();
}

base::Result<spec::ModelSpec> SpecOf(const std::string& config, std::string_view generation = "") {
  const auto parsed = HubConfig::Parse(config, generation);
  if (!parsed.ok()) return parsed.status();
  return parsed->CommonSpec();
}

void ExpectRefused(const char* changes, StatusCode code, std::string_view sentence) {
  SCOPED_TRACE(changes);
  const auto spec = SpecOf(With(changes));
  ASSERT_FALSE(spec.ok());
  ExpectSentence(spec.status(), code, sentence);
}

TEST(HubConfigTest, ReadsTheCommonKeys) {
  const auto spec = SpecOf(With("{}"));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->architecture, "TestForCausalLM");
  EXPECT_EQ(spec->vocab_size, 320);
  EXPECT_EQ(spec->hidden_size, 96);
  EXPECT_EQ(spec->intermediate_size, 160);
  EXPECT_EQ(spec->layers(), 3);
  EXPECT_THAT(spec->feed_forward, testing::Each(spec::FeedForwardKind::kDense));
  EXPECT_EQ(spec->attention.heads, 6);
  EXPECT_EQ(spec->attention.kv_heads, 2);
  EXPECT_EQ(spec->attention.head_dim, 16);
  EXPECT_EQ(spec->norm_epsilon, 1e-5);
  EXPECT_EQ(spec->context_length, 2048);
  EXPECT_FALSE(spec->tied_embeddings);
  EXPECT_EQ(spec->attention.rope.theta, 10000);
  EXPECT_FALSE(spec->attention.rope.llama3.has_value());
  EXPECT_THAT(spec->end_tokens, testing::ElementsAre(2));
}

TEST(HubConfigTest, FillsInDefaults) {
  const auto spec = SpecOf(With(
      R"({"num_key_value_heads":null,"head_dim":32,"rms_norm_eps":null,"eos_token_id":null,
          "hidden_act":null,"tie_word_embeddings":true})"));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->attention.kv_heads, 6);
  EXPECT_EQ(spec->attention.head_dim, 32);
  EXPECT_EQ(spec->norm_epsilon, 1e-6);
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_TRUE(spec->end_tokens.empty());
}

TEST(HubConfigTest, GenerationConfigDecidesTheEndTokens) {
  const std::string list = With(R"({"eos_token_id":[4,5]})");
  EXPECT_THAT(SpecOf(list)->end_tokens, testing::ElementsAre(4, 5));
  EXPECT_THAT(SpecOf(list, R"({"eos_token_id":7})")->end_tokens, testing::ElementsAre(7));
  EXPECT_THAT(SpecOf(list, R"({"eos_token_id":[8,9]})")->end_tokens, testing::ElementsAre(8, 9));
  EXPECT_THAT(SpecOf(list, R"({"eos_token_id":null})")->end_tokens, testing::ElementsAre(4, 5));
  EXPECT_THAT(SpecOf(list, "{}")->end_tokens, testing::ElementsAre(4, 5));
  ExpectSentence(SpecOf(list, R"({"eos_token_id":"x"})").status(), StatusCode::kInvalidArgument,
                 "generation_config.json: 'eos_token_id' must be an integer, not 'x'");
  ExpectSentence(SpecOf(list, "{").status(), StatusCode::kDataLoss,
                 "generation_config.json is not valid JSON");
  ExpectRefused(R"({"eos_token_id":320})", StatusCode::kInvalidArgument,
                "the end token 320 is not in the vocabulary of 320");
  ExpectRefused(R"({"eos_token_id":[-1]})", StatusCode::kInvalidArgument, "the end token -1");
}

TEST(HubConfigTest, ReadsRopeInAllSpellings) {
  const char* llama3[] = {
      R"({"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,
          "low_freq_factor":1,"high_freq_factor":4.0,"original_max_position_embeddings":1024}})",
      R"({"rope_theta":500000,"rope_scaling":{"type":"llama3","factor":8,
          "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":1024}})",
      R"({"rope_parameters":{"rope_type":"llama3","factor":8.0,"rope_theta":500000.0,
          "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":1024}})",
      R"({"rope_theta":500000,"rope_parameters":{"rope_type":"llama3","factor":8.0,
          "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":1024},
          "rope_scaling":{"type":"yarn"}})",
  };
  for (const char* changes : llama3) {
    SCOPED_TRACE(changes);
    const auto spec = SpecOf(With(changes));
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const spec::RopeSpec& rope = spec->attention.rope;
    EXPECT_EQ(rope.theta, 500000);
    ASSERT_TRUE(rope.llama3.has_value());
    EXPECT_EQ(rope.llama3->factor, 8);
    EXPECT_EQ(rope.llama3->low_frequency_factor, 1);
    EXPECT_EQ(rope.llama3->high_frequency_factor, 4);
    EXPECT_EQ(rope.llama3->original_context_length, 1024);
  }
  for (const char* changes :
       {R"({"rope_theta":1e6,"rope_scaling":null})",
        R"({"rope_theta":1000000,"rope_scaling":{"rope_type":"default"}})",
        R"({"rope_parameters":{"rope_type":"default","rope_theta":1000000.0}})"}) {
    SCOPED_TRACE(changes);
    const auto spec = SpecOf(With(changes));
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    EXPECT_EQ(spec->attention.rope.theta, 1e6);
    EXPECT_FALSE(spec->attention.rope.llama3.has_value());
  }
}

TEST(HubConfigTest, RefusesOtherRopes) {
  for (const char* type : {"longrope", "dynamic", "linear", "mrope"}) {
    const std::string sentence = fmt::format(
        "rope type '{}' is not supported for TestForCausalLM, which knows 'default', 'llama3' and "
        "'yarn'",
        type);
    ExpectRefused(fmt::format(R"({{"rope_scaling":{{"type":"{}","factor":2}}}})", type).c_str(),
                  StatusCode::kUnimplemented, sentence);
    ExpectRefused(fmt::format(R"({{"rope_parameters":{{"rope_type":"{}"}}}})", type).c_str(),
                  StatusCode::kUnimplemented, sentence);
  }
  const auto bad = StatusCode::kInvalidArgument;
  ExpectRefused(R"({"rope_scaling":"yarn"})", bad, "'rope_scaling' must be an object, not 'yarn'");
  ExpectRefused(R"({"rope_scaling":{"factor":2}})", bad,
                "'rope_scaling.rope_type' is missing; it must be a string");
  ExpectRefused(R"({"rope_scaling":{"type":"llama3"}})", bad,
                "'rope_scaling.factor' is missing; it must be a number");
  ExpectRefused(R"({"rope_scaling":{"type":"llama3","factor":0.5,"low_freq_factor":1,
                 "high_freq_factor":4,"original_max_position_embeddings":8}})",
                bad, "'rope_scaling.factor' is 0.5; it must be at least 1");
  ExpectRefused(R"({"rope_scaling":{"type":"llama3","factor":2,"low_freq_factor":0,
                 "high_freq_factor":4,"original_max_position_embeddings":8}})",
                bad, "'rope_scaling.low_freq_factor' is 0; it must be above 0");
  ExpectRefused(R"({"rope_scaling":{"type":"llama3","factor":2,"low_freq_factor":4,
                 "high_freq_factor":4,"original_max_position_embeddings":8}})",
                bad, "'rope_scaling.high_freq_factor' is 4; it must be above low_freq_factor");
  ExpectRefused(R"({"rope_theta":0})", bad, "'rope_theta' is 0; it must be above 1");
  ExpectRefused(R"({"partial_rotary_factor":0.5})", StatusCode::kUnimplemented,
                "'partial_rotary_factor' is 0.5");
  ExpectRefused(R"({"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.25}})",
                StatusCode::kUnimplemented, "'rope_parameters.partial_rotary_factor' is 0.25");
}

TEST(HubConfigTest, RefusesNonsense) {
  const auto bad = StatusCode::kInvalidArgument;
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings"}) {
    const auto refused = [&](const char* value, std::string_view sentence) {
      ExpectRefused(fmt::format(R"({{"{}":{}}})", key, value).c_str(), bad,
                    fmt::format("config.json: '{}' {}", key, sentence));
    };
    refused("null", "is missing; it must be an integer");
    refused("0", "is 0; it must be between 1 and 2147483647");
    refused("-8", "is -8; it must be between 1 and");
    refused("2147483648", "is 2147483648; it must be between 1 and");
    refused("1.5", "must be an integer, not 1.5");
    refused("\"96\"", "must be an integer, not '96'");
    refused("[96]", "must be an integer, not a list");
    refused("true", "must be an integer, not true");
    refused("18446744073709551615", "must be an integer, not 18446744073709551615");
  }
  ExpectRefused(R"({"hidden_size":2000000000})", bad, "at most 134217728 makes sense");
  ExpectRefused(R"({"num_hidden_layers":2000000000})", bad, "at most 10000 makes sense");
  ExpectRefused(R"({"num_attention_heads":2000000000,"num_key_value_heads":1,"head_dim":128})", bad,
                "2000000000 heads of 128 columns make no sense");
  ExpectRefused(R"({"num_key_value_heads":4})", bad,
                "'num_key_value_heads' is 4, which must divide the 6 attention heads");
  ExpectRefused(R"({"num_key_value_heads":12})", bad, "must divide the 6 attention heads");
  ExpectRefused(R"({"hidden_size":97})", bad, "'head_dim' is missing, and 97 hidden columns");
  ExpectRefused(R"({"head_dim":15})", bad, "'head_dim' is 15; it must be even");
  ExpectRefused(R"({"head_dim":0})", bad, "'head_dim' is 0; it must be between");
  ExpectRefused(R"({"rms_norm_eps":0})", bad, "'rms_norm_eps' is 0; it must be above 0");
  ExpectRefused(R"({"rms_norm_eps":"x"})", bad, "'rms_norm_eps' must be a number, not 'x'");
  ExpectRefused(R"({"tie_word_embeddings":1})", bad, "must be true or false, not 1");
  ExpectRefused(R"({"hidden_act":"gelu"})", StatusCode::kUnimplemented,
                "'hidden_act' is 'gelu'; only 'silu' is supported");
}

TEST(HubConfigTest, ReadsTheBlocksOfFp8Weights) {
  const auto config = HubConfig::Parse(With(
      R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,64]}})"));
  const auto blocks = config->ReadFp8Blocks();
  ASSERT_TRUE(blocks.ok()) << blocks.status().message();
  EXPECT_EQ((*blocks)->rows, 128);
  EXPECT_EQ((*blocks)->columns, 64);
  EXPECT_TRUE(config->CommonSpec().ok());
  EXPECT_FALSE(HubConfig::Parse(With("{}"))->ReadFp8Blocks()->has_value());
}

TEST(HubConfigTest, RefusesQuantisedWeightsByName) {
  ExpectRefused(R"({"quantization_config":{"quant_method":"gptq"}})", StatusCode::kUnimplemented,
                "weights quantised by 'gptq' are not supported for TestForCausalLM");
  ExpectRefused(R"({"quantization_config":{"quant_method":"fp8"}})", StatusCode::kUnimplemented,
                "'quantization_config.weight_block_size' is missing");
  ExpectRefused(R"({"quantization_config":{"quant_method":"fp8","fmt":"e5m2"}})",
                StatusCode::kUnimplemented, "'quantization_config.fmt' is 'e5m2'");
  ExpectRefused(R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128]}})",
                StatusCode::kInvalidArgument, "must be two positive numbers");
  ExpectRefused(R"({"quantization_config":{}})", StatusCode::kUnimplemented, "'unknown'");
  EXPECT_TRUE(SpecOf(With(R"({"quantization_config":null})")).ok());
}

TEST(HubConfigTest, RefusesSlidingWindowsInEffect) {
  const auto check = [](const char* changes) {
    const auto config = HubConfig::Parse(With(changes));
    return config.ok() ? config->CheckNoSlidingWindow() : config.status();
  };
  EXPECT_TRUE(check("{}").ok());
  EXPECT_TRUE(check(R"({"sliding_window":null})").ok());
  EXPECT_TRUE(check(R"({"sliding_window":null,"use_sliding_window":true})").ok());
  EXPECT_TRUE(check(R"({"sliding_window":4096,"use_sliding_window":false})").ok());
  EXPECT_TRUE(check(R"({"layer_types":["full_attention","full_attention"]})").ok());
  ExpectSentence(check(R"({"sliding_window":4096})"), StatusCode::kUnimplemented,
                 "'sliding_window' is 4096: attention within a sliding window is not supported");
  ExpectSentence(check(R"({"sliding_window":4096,"use_sliding_window":true})"),
                 StatusCode::kUnimplemented, "'sliding_window' is 4096");
  ExpectSentence(check(R"({"layer_types":["full_attention","sliding_attention"]})"),
                 StatusCode::kUnimplemented, "a layer of type 'sliding_attention'");
  ExpectSentence(check(R"({"layer_types":[1]})"), StatusCode::kInvalidArgument,
                 "must be a list in which each entry is a string, not 1");
}

TEST(HubConfigTest, NeedsOneArchitecture) {
  const auto refused = [](const char* changes, std::string_view sentence) {
    ExpectSentence(HubConfig::Parse(With(changes)).status(), StatusCode::kInvalidArgument,
                   sentence);
  };
  refused(R"({"architectures":null})", "'architectures' is missing");
  refused(R"({"architectures":[]})", "'architectures' is missing");
  refused(R"({"architectures":["A","B"]})", "'architectures' has 2 entries; it must have exactly");
  refused(R"({"architectures":"A"})", "'architectures' must be a list, not 'A'");
  refused(R"({"architectures":[7]})", "each entry is a string, not 7");
}

TEST(HubConfigTest, RefusesBrokenText) {
  const auto refused = [](std::string_view text, std::string_view sentence) {
    ExpectSentence(HubConfig::Parse(text).status(), StatusCode::kDataLoss, sentence);
  };
  refused("", "config.json is empty");
  refused("  ", "config.json is not valid JSON");
  refused("[]", "config.json is not a JSON object but a list");
  refused("{\"a\":1,}", "config.json is not valid JSON");
  refused("{\"a\":\"\xc3\"}", "config.json is not valid UTF-8");
  refused(R"({"a":1,"a":2})", "config.json has the key 'a' twice");
  refused(R"({"a":[{"b":1,"b":2}]})", "config.json has the key 'b' twice");
  refused("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}",
          "config.json is nested deeper than");
}

TEST(HubConfigTest, GivesTypedValues) {
  const auto config = HubConfig::Parse(With(
      R"({"ints":[1,2],"one":3,"none":null,"flag":true,"text":"t","real":2,
          "inner":{"deep":{"x":"y"}}})"));
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(*config->Ints("ints"), testing::ElementsAre(1, 2));
  EXPECT_TRUE(config->Ints("none")->empty());
  EXPECT_THAT(*config->IntOrInts("one"), testing::ElementsAre(3));
  EXPECT_FALSE(config->Ints("one").ok());
  EXPECT_FALSE(config->Has("none"));
  EXPECT_TRUE(*config->Bool("flag"));
  EXPECT_TRUE(*config->Bool("none", true));
  EXPECT_EQ(*config->String("text"), "t");
  EXPECT_EQ(*config->String("none", "default"), "default");
  EXPECT_EQ(*config->Double("real"), 2.0);
  EXPECT_EQ(*config->Int("none", -5), -5);
  EXPECT_EQ(*config->Size("none", 5), 5);
  EXPECT_FALSE(config->Section("none")->has_value());
  const auto inner = config->Section("inner");
  ASSERT_TRUE(inner.ok() && inner->has_value());
  const auto deep = (*inner)->Section("deep");
  ASSERT_TRUE(deep.ok() && deep->has_value());
  ExpectSentence((*deep)->Int("x").status(), StatusCode::kInvalidArgument,
                 "config.json: 'inner.deep.x' must be an integer, not 'y'");
}

TEST(HubConfigTest, LoadsFolders) {
  const TestFolder folder;
  ExpectSentence(HubConfig::Load(folder.Path("none")).status(), StatusCode::kNotFound,
                 "there is no model folder");
  ExpectSentence(HubConfig::Load(folder.path()).status(), StatusCode::kNotFound,
                 "there is no file " + folder.Path("config.json").native());
  folder.Write("config.json", With("{}"));
  auto config = HubConfig::Load(folder.path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->CommonSpec()->end_tokens, testing::ElementsAre(2));
  folder.Write("generation_config.json", R"({"eos_token_id":[5]})");
  config = HubConfig::Load(folder.path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->CommonSpec()->end_tokens, testing::ElementsAre(5));
  folder.Write("generation_config.json", "");
  ExpectSentence(HubConfig::Load(folder.path()).status(), StatusCode::kDataLoss,
                 "generation_config.json is empty");
}

// Whatever is done to a config, it is refused with a sentence or gives a model that makes sense.
TEST(HubConfigTest, SurvivesMutations) {
  const std::string whole = With(R"({"rope_scaling":{"rope_type":"llama3","factor":8.0,
      "low_freq_factor":1,"high_freq_factor":4.0,"original_max_position_embeddings":1024}})");
  std::mt19937 random(11);
  const auto below = [&random](size_t bound) { return random() % bound; };
  int accepted = 0;
  constexpr int kRounds = 10'000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = whole;
    const size_t at = below(text.size());
    text[at] = below(2) == 0 ? static_cast<char>(below(256)) : "0123456789,:[]{}\""[below(17)];
    if (below(8) == 0) text.resize(below(text.size()));
    const auto spec = SpecOf(text);
    if (!spec.ok()) {
      ASSERT_FALSE(spec.status().message().empty());
      continue;
    }
    ++accepted;
    ASSERT_GT(spec->attention.head_dim, 0);
    ASSERT_EQ(spec->attention.heads % spec->attention.kv_heads, 0);
    ASSERT_LE(spec->layers(), 10'000);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, kRounds);
}

struct KnownModel {
  std::string_view folder;
  std::string_view architecture;
  int head_dim;
  bool tied;
  bool llama3;
  double theta;
};

TEST(HubConfigTest, LoadsTheModelsOfTheTests) {
  const KnownModel models[] = {
      {"tests/data/models/rand-llama", "LlamaForCausalLM", 16, true, false, 1e4},
      {"tests/data/models/rand-llama31", "LlamaForCausalLM", 16, false, true, 5e5},
      {"tests/data/models/rand-qwen2", "Qwen2ForCausalLM", 16, false, false, 1e4},
      {"tests/data/models/rand-qwen3", "Qwen3ForCausalLM", 32, true, false, 1e4},
      {"models/tiny-qwen3-moe", "Qwen3MoeForCausalLM", 128, false, false, 1e6},
  };
  for (const KnownModel& model : models) {
    SCOPED_TRACE(model.folder);
    const auto config = HubConfig::Load(SourcePath(model.folder));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_TRUE(config->CheckNoSlidingWindow().ok());
    const auto spec = config->CommonSpec();
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    EXPECT_EQ(config->architecture(), model.architecture);
    EXPECT_EQ(spec->attention.head_dim, model.head_dim);
    EXPECT_EQ(spec->tied_embeddings, model.tied);
    EXPECT_EQ(spec->attention.rope.llama3.has_value(), model.llama3);
    EXPECT_EQ(spec->attention.rope.theta, model.theta);
  }
}

}  // namespace
}  // namespace longspan::checkpoint
