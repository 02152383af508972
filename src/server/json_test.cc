#include "server/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "server/fields.h"

namespace longspan::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JsonTest, ReadsWhatItPrints) {
  const char* text =
      R"({"b":[1,-2,2.5,true,null,"ü\n"],"a":{"z":{},"y":[]},"n":18446744073709551615})";
  const auto json = ParseJson(text);
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(Dump(*json), text);
}

TEST(JsonTest, OfMembersOfOneNameTheLastOneCounts) {
  EXPECT_EQ(Dump(*ParseJson(R"({"a":1,"b":2,"a":3})")), R"({"a":3,"b":2})");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += fmt::format("\"k{}\":{},", i % 50, i);
  many.back() = '}';
  const auto json = ParseJson(many);
  EXPECT_EQ(json->size(), 50u);
  EXPECT_EQ((*json)["k7"], 57);
}

TEST(JsonTest, RefusesWhatIsNone) {
  for (const std::string text : {"", "{", "{\"a\":}", "nul", "{\"a\":1}x", "\"\xff\"", "[1e999]",
                                 "123456789012345678901234567890"})
    EXPECT_EQ(ParseJson(text).status().code(), base::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(ParseJson(std::string(200, '[') + std::string(200, ']')).status().message(),
              HasSubstr("nested"));
}

TEST(JsonTest, ManyMembersTakeNoSquareOfTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("\"{}\":0,", i);
  text.back() = '}';
  const auto begin = base::ThreadCpuTime();
  EXPECT_EQ(ParseJson(text)->size(), 200'000u);
  EXPECT_LT(base::Seconds(base::ThreadCpuTime() - begin), 5.0);
}

TEST(FieldsTest, NullCountsAsNotGiven) {
  const Json json = {{"a", nullptr}, {"b", 3.0}, {"c", "x"}, {"d", Json::array({"x", "y"})}};
  Fields fields(json);
  int64_t a = 5;
  int b = 0;
  std::vector<std::string> c;
  std::vector<std::string> d;
  fields.Read("a", a);
  fields.Read("b", b);
  fields.Read("c", c);
  fields.Read("d", d);
  fields.Refuse("a");
  EXPECT_TRUE(fields.status().ok());
  EXPECT_EQ(a, 5);
  EXPECT_EQ(b, 3);
  EXPECT_THAT(c, ElementsAre("x"));
  EXPECT_THAT(d, ElementsAre("x", "y"));
}

TEST(FieldsTest, TheFirstErrorIsToldByName) {
  const Json json = {{"n", "two"}, {"stream", 1}, {"big", 5'000'000'000}};
  Fields fields(json, "options.");
  int n = 1;
  bool stream = false;
  fields.Read("n", n);
  fields.Read("stream", stream);
  EXPECT_EQ(fields.param(), "options.n");
  EXPECT_THAT(fields.status().message(), HasSubstr("'options.n' must be an integer"));
  Fields other(json);
  other.Read("big", n);
  EXPECT_THAT(other.status().message(), HasSubstr("out of range"));
}

TEST(FieldsTest, RefusesWhatWouldHaveAnEffect) {
  const Json json = {{"store", false}, {"schema", {{"type", "object"}}}, {"list", Json::array()}};
  Fields fields(json);
  fields.Refuse("store", "false");
  fields.Refuse("list");
  fields.Refuse("missing");
  EXPECT_TRUE(fields.status().ok());
  fields.Refuse("schema");
  EXPECT_EQ(fields.param(), "schema");
}

}  // namespace
}  // namespace longspan::server
