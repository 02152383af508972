#include "engine/decode_groups.h"

#include <algorithm>
#include <memory>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler.h"

namespace longspan::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DecodeGroupsTest, StayBalancedWhoeverComesAndGoes) {
  std::mt19937 random(1);
  for (int groups = 1; groups <= 5; ++groups) {
    DecodeGroups decodes(groups);
    std::vector<std::unique_ptr<Sequence>> members;
    for (int step = 0; step < 2000; ++step) {
      if (members.empty() || random() % 100 < (step % 400 < 200 ? 70u : 30u)) {
        members.push_back(std::make_unique<Sequence>());
        decodes.Join(*members.back());
      } else {
        const auto leaver = members.begin() + random() % members.size();
        decodes.Leave(**leaver);
        EXPECT_LT((*leaver)->group, 0);
        members.erase(leaver);
      }
      size_t smallest = members.size();
      size_t largest = 0;
      size_t total = 0;
      for (int g = 0; g < groups; ++g) {
        for (const Sequence* member : decodes.group(g)) EXPECT_EQ(member->group, g);
        smallest = std::min(smallest, decodes.group(g).size());
        largest = std::max(largest, decodes.group(g).size());
        total += decodes.group(g).size();
      }
      EXPECT_LE(largest - smallest, 1u);
      EXPECT_EQ(total, members.size());
      EXPECT_EQ(decodes.members(), static_cast<int64_t>(members.size()));
      EXPECT_EQ(decodes.in_use(), std::min<int>(groups, static_cast<int>(members.size())));
    }
  }
}

TEST(DecodeGroupsTest, LeavingTwiceIsNoHarm) {
  DecodeGroups decodes(2);
  Sequence sequence;
  decodes.Leave(sequence);
  decodes.Join(sequence);
  decodes.Leave(sequence);
  decodes.Leave(sequence);
  EXPECT_EQ(decodes.members(), 0);
}

class GroupedPlansTest : public ::testing::Test {
 protected:
  void Add(int64_t id, int64_t tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = {id};
    sequence->request.prompt.assign(static_cast<size_t>(tokens), static_cast<int32_t>(id));
    sequence->request.max_tokens = 100;
    ASSERT_TRUE(
        scheduler_.Enqueue(std::move(sequence), {.context_length = 1000, .page_size = 16}).ok());
  }

  plan::StepPlan Next() { return scheduler_.Next().value(); }

  void Commit(const plan::StepPlan& plan) {
    scheduler_.OnComputed(plan);
    for (const plan::LogitsRow& row : plan.logits_rows) {
      Sequence* sequence = scheduler_.Find(plan.slices[row.slice].sequence);
      sequence->pending.pop_front();
      sequence->output.push_back(7);
    }
  }

  static std::vector<int64_t> Ids(const plan::StepPlan& plan) {
    std::vector<int64_t> ids;
    for (const plan::Slice& slice : plan.slices) ids.push_back(slice.sequence.value);
    return ids;
  }

  Scheduler scheduler_{{.chunk_tokens = 32, .stages = 2}, 64, 16};
};

TEST_F(GroupedPlansTest, GroupsTakeTurnsAndReferToTheirOwnLastPlan) {
  for (int64_t id = 1; id <= 4; ++id) Add(id, 8);
  Commit(Next());
  const auto first = Next();
  const auto second = Next();
  EXPECT_THAT(Ids(first), ElementsAre(1, 3));
  EXPECT_THAT(Ids(second), ElementsAre(2, 4));
  const auto third = Next();
  EXPECT_THAT(Ids(third), ElementsAre(1, 3));
  for (const plan::Slice& slice : third.slices) EXPECT_EQ(slice.tokens[0].plan, first.number);
  // A second sample of each is in flight.
  EXPECT_THAT(Ids(Next()), ElementsAre(2, 4));
  EXPECT_FALSE(scheduler_.Next().has_value());
  Commit(first);
  EXPECT_THAT(Ids(Next()), ElementsAre(1, 3));
}

TEST_F(GroupedPlansTest, ASequenceJoinsTheGroupsWhenItsPromptIsDone) {
  Add(1, 8);
  Add(2, 8);
  Commit(Next());
  Add(3, 8);
  // A step with a chunk takes a group, too, of what is committed.
  const auto mixed = Next();
  EXPECT_THAT(Ids(mixed), ElementsAre(1, 3));
  const auto other = Next();
  EXPECT_THAT(Ids(other), ElementsAre(2));
  // Sequence 3 is of the first group, but its token comes from the plan before the last.
  EXPECT_THAT(Ids(Next()), ElementsAre(1, 3));
  Commit(mixed);
  scheduler_.Retire({2});
  // The group that lost its only member gets one of the other's.
  EXPECT_THAT(scheduler_.Find({3})->group, 1);
  // Both have their last row in the last plan: no group's turn is before theirs.
  EXPECT_THAT(Ids(Next()), ElementsAre(3));
  EXPECT_THAT(Ids(Next()), ElementsAre(1));
}

TEST_F(GroupedPlansTest, AChunkNeverWaitsForTheLastStage) {
  Add(1, 8);
  Add(2, 100);
  const auto first = Next();
  EXPECT_THAT(Ids(first), ElementsAre(1, 2));
  EXPECT_THAT(Ids(Next()), ElementsAre(2)) << "the token of 1 is not committed";
  Commit(first);
  const auto third = Next();
  EXPECT_THAT(Ids(third), ElementsAre(1, 2));
  for (const plan::Slice& slice : third.slices)
    for (const auto& token : slice.tokens) EXPECT_TRUE(token.is_literal());
}

}  // namespace
}  // namespace longspan::engine
