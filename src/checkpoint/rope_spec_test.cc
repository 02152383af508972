#include "checkpoint/rope_spec.h"

#include "checkpoint/test_files.h"

namespace longspan::checkpoint {
namespace {

using base::StatusCode;

base::Result<spec::RopeSpec> Read(const std::string& config) {
  const auto fields = JsonFields::Parse(config, "config.json");
  if (!fields.ok()) return fields.status();
  return ReadRope(*fields, "TestForCausalLM", 2048);
}

TEST(RopeSpecTest, ReadsYarnInBothSpellings) {
  for (const char* config :
       {R"({"rope_theta":20000,"rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,
            "mscale_all_dim":0.7,"original_max_position_embeddings":4096,"beta_fast":30,
            "beta_slow":2}})",
        R"({"rope_parameters":{"rope_type":"yarn","rope_theta":20000.0,"factor":40.0,"mscale":1,
            "mscale_all_dim":0.7,"original_max_position_embeddings":4096,"beta_fast":30.0,
            "beta_slow":2.0}})"}) {
    SCOPED_TRACE(config);
    const auto rope = Read(config);
    ASSERT_TRUE(rope.ok()) << rope.status().message();
    EXPECT_EQ(rope->theta, 20000);
    EXPECT_FALSE(rope->llama3.has_value());
    ASSERT_TRUE(rope->yarn.has_value());
    EXPECT_EQ(rope->yarn->factor, 40);
    EXPECT_EQ(rope->yarn->original_context_length, 4096);
    EXPECT_EQ(rope->yarn->beta_fast, 30);
    EXPECT_EQ(rope->yarn->beta_slow, 2);
    EXPECT_EQ(rope->yarn->mscale, 1);
    EXPECT_EQ(rope->yarn->mscale_all_dim, 0.7);
    EXPECT_FALSE(rope->yarn->attention_factor.has_value());
  }
}

TEST(RopeSpecTest, YarnHasDefaults) {
  const auto rope =
      Read(R"({"rope_scaling":{"rope_type":"yarn","factor":4,"attention_factor":1.5}})");
  ASSERT_TRUE(rope.ok()) << rope.status().message();
  EXPECT_EQ(rope->yarn->original_context_length, 2048);
  EXPECT_EQ(rope->yarn->beta_fast, 32);
  EXPECT_EQ(rope->yarn->beta_slow, 1);
  EXPECT_EQ(rope->yarn->attention_factor, 1.5);
}

TEST(RopeSpecTest, RefusesYarnThatMakesNoSense) {
  const auto refused = [](const char* keys, StatusCode code, std::string_view sentence) {
    SCOPED_TRACE(keys);
    const auto rope = Read(fmt::format(R"({{"rope_scaling":{{"type":"yarn"{}}}}})", keys));
    ASSERT_FALSE(rope.ok());
    ExpectSentence(rope.status(), code, sentence);
  };
  const auto bad = StatusCode::kInvalidArgument;
  refused("", bad, "'rope_scaling.factor' is missing");
  refused(R"(,"factor":0.5)", bad, "it must be at least 1");
  refused(R"(,"factor":2,"beta_slow":40)", bad,
          "'rope_scaling.beta_fast' is 32; it must be at least beta_slow, which is 40");
  refused(R"(,"factor":2,"beta_slow":0)", bad, "'rope_scaling.beta_slow' is 0");
  refused(R"(,"factor":2,"mscale":-1)", bad, "'rope_scaling.mscale' is -1; it must be at least 0");
  refused(R"(,"factor":2,"attention_factor":0)", bad, "'rope_scaling.attention_factor' is 0");
  refused(R"(,"factor":2,"truncate":false)", StatusCode::kUnimplemented, "fractional borders");
}

}  // namespace
}  // namespace longspan::checkpoint
