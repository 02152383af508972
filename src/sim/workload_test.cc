#include "sim/workload.h"

#include <gmock/gmock.h>

namespace longspan::sim {
namespace {

using testing::HasSubstr;

TEST(WorkloadTest, RequestsAreSortedByArrivalAndHaveDefaults) {
  const auto workload = ParseWorkload(
      R"({"requests": [{"at_s": 2, "prompt_tokens": 10, "output_tokens": 5},
                       {"prompt_tokens": 100, "prefix_id": 3, "prefix_tokens": 64}]})",
      "load.json");
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  ASSERT_EQ(workload->size(), 2u);
  EXPECT_EQ((*workload)[0].prompt_tokens, 100);
  EXPECT_EQ((*workload)[0].output_tokens, 1);
  EXPECT_EQ((*workload)[0].prefix_tokens, 64);
  EXPECT_EQ((*workload)[1].at_s, 2);
  EXPECT_EQ((*workload)[1].output_tokens, 5);
}

TEST(WorkloadTest, WhatMakesNoSenseIsNamed) {
  const struct {
    std::string text, message;
  } cases[] = {
      {R"({})", "'requests' must be a list"},
      {R"({"requests": []})", "is empty"},
      {R"({"requests": [3]})", "request 1: must be an object"},
      {R"({"requests": [{"prompt_tokens": 1}, {"at_s": 1}]})",
       "request 2: 'prompt_tokens' is missing"},
      {R"({"requests": [{"prompt_tokens": 0}]})", "'prompt_tokens' must be an integer from 1"},
      {R"({"requests": [{"prompt_tokens": 5, "at_s": -1}]})", "'at_s' must be 0 or more"},
      {R"({"requests": [{"prompt_tokens": 5, "prefix_id": 1, "prefix_tokens": 6}]})",
       "'prefix_tokens' 6 is more than"},
  };
  for (const auto& c : cases) {
    const auto workload = ParseWorkload(c.text, "load.json");
    ASSERT_FALSE(workload.ok()) << c.text;
    EXPECT_THAT(workload.status().message(), HasSubstr(c.message));
    EXPECT_THAT(workload.status().message(), HasSubstr("load.json"));
  }
}

}  // namespace
}  // namespace longspan::sim
