#include "server/json.h"

#include <limits>

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
  for (const std::string text : {"", "{", "{\"a\":}", "nul", "{\"a\":1}x", "\"\xff\"", "[01]",
                                 "[-]", "12345678901234567890123x", "[1e999,]"})
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

// What does not fit is a number all the same, and members are known by theirs.
TEST(JsonTest, NumbersThatDoNotFitBecomeDoubles) {
  const auto json =
      ParseJson(R"({"a":18446744073709551616,"b":-9223372036854775809,"c":1e999,"d":-1e999,)"
                R"("e":18446744073709551615,"s":"\\\"99999999999999999999",)" +
                ("\"f\":" + std::string(400, '9')) + "}");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ((*json)["a"], 18446744073709551616.0);
  EXPECT_EQ((*json)["b"], -9223372036854775809.0);
  EXPECT_EQ((*json)["c"], std::numeric_limits<double>::max());
  EXPECT_EQ((*json)["d"], std::numeric_limits<double>::lowest());
  EXPECT_EQ((*json)["e"], UINT64_MAX);
  EXPECT_EQ((*json)["s"], "\\\"99999999999999999999");
  EXPECT_EQ((*json)["f"], std::numeric_limits<double>::max());
}

TEST(FieldsTest, SeedsAreAny64Bits) {
  const auto seed = [](const char* text) {
    const Json json = ParseJson(text).value();
    Fields fields(json);
    std::optional<uint64_t> value;
    fields.Read("seed", value);
    return fields.status().ok() ? fmt::format("{}", value.value()) : fields.status().message();
  };
  EXPECT_EQ(seed(R"({"seed":18446744073709551615})"), "18446744073709551615");
  EXPECT_EQ(seed(R"({"seed":-1})"), "18446744073709551615");
  EXPECT_EQ(seed(R"({"seed":-9223372036854775808})"), "9223372036854775808");
  EXPECT_EQ(seed(R"({"seed":7.0})"), "7");
  EXPECT_THAT(seed(R"({"seed":18446744073709551616})"), HasSubstr("'seed' is out of range"));
  EXPECT_THAT(seed(R"({"seed":-1e300})"), HasSubstr("'seed' is out of range"));
  EXPECT_THAT(seed(R"({"seed":1.5})"), HasSubstr("'seed' must be an integer"));
}

TEST(FieldsTest, IntegersBeyond64BitsAreToldByName) {
  const Json json = ParseJson(R"({"n":99999999999999999999,"k":18446744073709551615})").value();
  Fields n(json);
  int value = 0;
  n.Read("n", value);
  EXPECT_THAT(n.status().message(), HasSubstr("'n' is out of range"));
  Fields k(json);
  k.Read("k", value);
  EXPECT_THAT(k.status().message(), HasSubstr("'k' is out of range"));
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
