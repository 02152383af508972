// The parts that a stage is made of, each alone: page tables, residual buffers, tokens, capacity.
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "comm/in_process/in_process.h"
#include "runtime/residual_slots.h"
#include "runtime/stage_group.h"
#include "runtime/step_tables.h"
#include "runtime/token_feed.h"

namespace longspan::runtime {
namespace {

using plan::TokenSource;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

plan::Slice SliceOf(int64_t sequence, int64_t begin, int64_t tokens,
                    std::vector<kv::PageId> pages) {
  return {.sequence = {sequence},
          .begin = begin,
          .tokens = std::vector<TokenSource>(static_cast<size_t>(tokens), TokenSource::Literal(1)),
          .new_pages = std::move(pages)};
}

plan::SequenceStart StartOf(int64_t sequence) { return {.sequence = {sequence}}; }

TEST(SequencePagesTest, SlicesBecomePositionsSlotsAndAPageTable) {
  SequencePages pages(4, 16);
  const auto tables = pages.Apply({.started = {StartOf(1), StartOf(2)},
                                   .slices = {SliceOf(1, 0, 5, {7, 2}), SliceOf(2, 0, 2, {9})}});
  ASSERT_TRUE(tables.ok()) << tables.status().message();
  EXPECT_EQ(tables->rows, 7);
  EXPECT_EQ(tables->slices, 2);
  EXPECT_EQ(tables->max_kv_length, 5);
  EXPECT_EQ(tables->max_pages, PageTableColumns(2));
  EXPECT_THAT(tables->positions, ElementsAre(0, 1, 2, 3, 4, 0, 1));
  EXPECT_THAT(tables->slots, ElementsAre(28, 29, 30, 31, 8, 36, 37));
  EXPECT_THAT(tables->slice_row_begin, ElementsAre(0, 5, 7));
  ASSERT_EQ(tables->page_table.size(), 2u * tables->max_pages);
  EXPECT_THAT(std::span(tables->page_table).first(2), ElementsAre(7, 2));
  EXPECT_EQ(tables->page_table[tables->max_pages], 9);
  // The next step goes on where this one ended; a new page only where it is needed.
  const auto next = pages.Apply({.slices = {SliceOf(1, 5, 1, {})}});
  ASSERT_TRUE(next.ok());
  EXPECT_THAT(next->slots, ElementsAre(9));
  EXPECT_THAT(std::span(next->page_table).first(2), ElementsAre(7, 2));
}

// Two prompts of five and two tokens over two ranks: the short one stays whole.
TEST(SequencePagesTest, ContextRanksHaveRowsOfTheirOwn) {
  const plan::StepPlan plan = {
      .started = {StartOf(1), StartOf(2)},
      .slices = {SliceOf(1, 0, 5, {7, 2}), SliceOf(2, 0, 1, {9})},
      .logits_rows = {
          {.slice = 0, .position = 3}, {.slice = 0, .position = 4}, {.slice = 1, .position = 0}}};
  SequencePages first(4, 16, {.rank = 0, .size = 2});
  SequencePages second(4, 16, {.rank = 1, .size = 2});
  const auto a = first.Apply(plan);
  const auto b = second.Apply(plan);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_THAT(a->positions, ElementsAre(0, 2, 4));
  EXPECT_THAT(b->positions, ElementsAre(1, 3, 0));
  EXPECT_THAT(a->slots, ElementsAre(28, 30, 8));
  EXPECT_THAT(b->slots, ElementsAre(29, 31, 36));
  EXPECT_THAT(a->slice_row_begin, ElementsAre(0, 3));
  EXPECT_THAT(b->slice_row_begin, ElementsAre(0, 2, 3));
  EXPECT_EQ(a->page_table.size(), static_cast<size_t>(a->max_pages));
  EXPECT_EQ(b->page_table[b->max_pages], 9);
  EXPECT_EQ(a->extents[0].end, 5);
  EXPECT_EQ(a->extents[0].rows, 3);
  EXPECT_EQ(b->tokens.size(), 3u);
  for (const HostTables& tables : {*a, *b}) {
    EXPECT_THAT(tables.gathered_counts, ElementsAre(3, 3));
    EXPECT_THAT(tables.gathered_slots, ElementsAre(28, 30, 8, 29, 31, 36));
    std::vector<std::pair<int32_t, int32_t>> listed;
    for (const ListedRow& row : tables.listed) listed.emplace_back(row.rank, row.row);
    EXPECT_THAT(listed, ElementsAre(std::pair(1, 1), std::pair(0, 2), std::pair(1, 2)));
  }
}

// The even pages are the first rank's.
TEST(SequencePagesTest, RanksThatDivideTheCacheKeepTheirPages) {
  const plan::StepPlan plan = {.started = {StartOf(1)}, .slices = {SliceOf(1, 0, 10, {7, 2, 4})}};
  SequencePages first(4, 16, {.rank = 0, .size = 2}, {.rank = 0, .size = 2});
  SequencePages second(4, 16, {.rank = 1, .size = 2}, {.rank = 1, .size = 2});
  const auto a = first.Apply(plan);
  const auto b = second.Apply(plan);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(a->sharded && b->sharded);
  // Of positions 0, 2 ... 8 the two in page 7 go to the second rank.
  EXPECT_THAT(a->sharded->outgoing, ElementsAre(3, 2));
  EXPECT_THAT(a->sharded->owner_places, ElementsAre(3, 4, 0, 1, 2));
  EXPECT_THAT(b->sharded->outgoing, ElementsAre(3, 2));
  // Page 2 is its own page 1, page 4 its page 2; page 7 is page 3 of the second rank.
  EXPECT_THAT(a->sharded->incoming, ElementsAre(3, 3));
  EXPECT_THAT(a->sharded->incoming_slots, ElementsAre(4, 6, 8, 5, 7, 9));
  EXPECT_THAT(b->sharded->incoming, ElementsAre(2, 2));
  EXPECT_THAT(b->sharded->incoming_slots, ElementsAre(12, 14, 13, 15));
  // What every row sees of either's pages, but for the last one of it.
  EXPECT_THAT(a->sharded->all.positions, ElementsAre(-1, -1, 0, 2, 4, -1, -1, 1, 3, 5));
  EXPECT_THAT(b->sharded->all.positions, ElementsAre(0, 2, 3, 3, 3, 1, 3, 3, 3, 3));
  EXPECT_THAT(a->sharded->all.slice_row_begin, ElementsAre(0, 5, 10));
  EXPECT_EQ(a->sharded->all.max_kv_length, 6);
  EXPECT_THAT(std::span(a->sharded->all.page_table).first(2), ElementsAre(1, 2));
  EXPECT_EQ(b->sharded->all.page_table[b->sharded->all.max_pages], 3);
  EXPECT_THAT(std::span(a->sharded->page_indices).first(2), ElementsAre(1, 2));
  EXPECT_EQ(b->sharded->page_indices[b->sharded->all.max_pages], 0);
  // Pages that come later follow those that are there.
  const plan::StepPlan next = {.slices = {SliceOf(1, 10, 3, {6})}};
  const auto more = first.Apply(next);
  ASSERT_TRUE(more.ok() && more->sharded);
  EXPECT_THAT(std::span(more->sharded->all.page_table).first(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(std::span(more->sharded->page_indices).first(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(more->sharded->all.positions, ElementsAre(6, 8, 7));
}

TEST(SequencePagesTest, ThePageTablesOfConsecutiveDecodesHaveFewShapes) {
  int shapes = 0;
  int64_t last = 0;
  for (int64_t pages = 1; pages <= 4096; ++pages) {
    const int64_t columns = PageTableColumns(pages);
    EXPECT_GE(columns, pages);
    EXPECT_LE(columns, std::max<int64_t>(16, pages + pages / 4 + 1));
    EXPECT_GE(columns, last);
    shapes += static_cast<int>(columns != last);
    last = columns;
  }
  EXPECT_LE(shapes, 40);
}

TEST(SequencePagesTest, SlotsPass32Bits) {
  constexpr kv::PageId kLast = (1 << 30) - 1;
  SequencePages pages(64, kLast + int64_t{1});
  const auto tables =
      pages.Apply({.started = {StartOf(1)}, .slices = {SliceOf(1, 0, 66, {kLast, kLast - 1})}});
  ASSERT_TRUE(tables.ok()) << tables.status().message();
  EXPECT_EQ(tables->slots[63], (int64_t{1} << 36) - 1);
  EXPECT_EQ(tables->slots[65], (int64_t{1} << 36) - 127);
}

TEST(SequencePagesTest, ReleasedSequencesAreForgotten) {
  SequencePages pages(4, 16);
  ASSERT_TRUE(pages.Apply({.started = {StartOf(1)}, .slices = {SliceOf(1, 0, 1, {0})}}).ok());
  EXPECT_EQ(pages.sequences(), 1);
  // Its page goes to another one in the same plan.
  ASSERT_TRUE(
      pages.Apply({.released = {{1}}, .started = {StartOf(2)}, .slices = {SliceOf(2, 0, 1, {0})}})
          .ok());
  EXPECT_EQ(pages.sequences(), 1);
  EXPECT_THAT(pages.Apply({.slices = {SliceOf(1, 1, 1, {})}}).status().message(),
              HasSubstr("sequence 1, which was not started"));
}

TEST(SequencePagesTest, WhatNoLeaderSendsIsRefused) {
  SequencePages pages(4, 16);
  EXPECT_THAT(pages.Apply({.slices = {SliceOf(1, 0, 1, {0})}}).status().message(),
              HasSubstr("not started"));
  for (const kv::PageId page : {-1, 16}) {
    EXPECT_THAT(pages.Apply({.started = {StartOf(1)}, .slices = {SliceOf(1, 0, 1, {page})}})
                    .status()
                    .message(),
                HasSubstr("cache of 16 pages"));
  }
  EXPECT_THAT(
      pages.Apply({.started = {StartOf(1)}, .slices = {SliceOf(1, 0, 5, {0})}}).status().message(),
      HasSubstr("pages for 4 tokens"));
  EXPECT_THAT(pages
                  .Apply({.started = {StartOf(1)},
                          .slices = {SliceOf(1, 0, 2, {0})},
                          .logits_rows = {{.slice = 0, .position = 2}}})
                  .status()
                  .message(),
              HasSubstr("logits of position 2"));
}

std::unique_ptr<ResidualSlots> MakeSlots(int count) {
  auto slots = ResidualSlots::Create(backend::reference::ReferenceBackend(), count, 4, 8,
                                     tensor::DType::kF32);
  EXPECT_TRUE(slots.ok());
  return std::move(slots).value();
}

TEST(ResidualSlotsTest, AreUsedInTurnAndWaitedFor) {
  const auto slots = MakeSlots(2);
  EXPECT_EQ(slots->Acquire().value(), 0);
  EXPECT_EQ(slots->Acquire().value(), 1);
  EXPECT_NE(slots->Rows(0, 4).raw(), slots->Rows(1, 4).raw());
  EXPECT_EQ(slots->Rows(1, 3).size(0), 3);
  std::thread releasing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    slots->Release(0, {});
  });
  EXPECT_EQ(slots->Acquire().value(), 0);
  releasing.join();
}

TEST(ResidualSlotsTest, ABufferIsHeldUntilItsSendIsDone) {
  const auto slots = MakeSlots(1);
  auto [here, there] = comm::CreateInProcessLinkPair();
  EXPECT_EQ(slots->Acquire().value(), 0);
  const tensor::View rows = slots->Rows(0, 1);
  slots->Release(0, here->Send(1, std::span(static_cast<const std::byte*>(rows.raw()),
                                            static_cast<size_t>(rows.bytes()))));
  std::vector<std::byte> received(static_cast<size_t>(rows.bytes()));
  std::atomic<bool> asked = false;
  std::thread receiving([&, &peer = there] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    asked = true;
    EXPECT_TRUE(peer->Receive(1, received).Wait().ok());
  });
  EXPECT_TRUE(slots->Acquire().ok());
  EXPECT_TRUE(asked) << "acquired before the send was done";
  receiving.join();
  // An error of the send is told to who wants the buffer next.
  slots->Release(0, comm::Transfer::Done(base::Unavailable("the next stage is gone")));
  EXPECT_EQ(slots->Acquire().status().message(), "the next stage is gone");
}

TEST(ResidualSlotsTest, CancelWakesWhoWaits) {
  const auto slots = MakeSlots(1);
  EXPECT_TRUE(slots->Acquire().ok());
  std::thread cancelling([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    slots->Cancel();
  });
  EXPECT_EQ(slots->Acquire().status().code(), base::StatusCode::kAborted);
  cancelling.join();
}

TEST(TokenFeedTest, LiteralsAreTheirOwnTokens) {
  TokenFeed feed(nullptr);
  EXPECT_EQ(feed.Resolve(TokenSource::Literal(5)).value(), 5);
}

TEST(TokenFeedTest, OneStageFindsWhatItHasPublished) {
  TokenFeed feed(nullptr);
  feed.Publish({{1}, {10, -1}});
  feed.Publish({{3}, {30}});
  EXPECT_EQ(feed.Resolve(TokenSource::Sampled({1}, 0)).value(), 10);
  EXPECT_EQ(feed.Resolve(TokenSource::Sampled({3}, 0)).value(), 30);
  for (const auto& source : {TokenSource::Sampled({1}, 1), TokenSource::Sampled({1}, 2),
                             TokenSource::Sampled({2}, 0), TokenSource::Sampled({4}, 0)})
    EXPECT_EQ(feed.Resolve(source).status().code(), base::StatusCode::kDataLoss);
}

TEST(TokenFeedTest, TheFirstStageWaitsForTheLast) {
  auto [last, first] = comm::CreateInProcessChannelPair();
  TokenFeed feed(first.get());
  ASSERT_TRUE(last->Send(EncodeTokens({{1}, {10}})).ok());
  std::thread sending([&, &channel = last] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(channel->Send(EncodeTokens({{2}, {-1, 20}})).ok());
  });
  EXPECT_EQ(feed.Resolve(TokenSource::Sampled({2}, 1)).value(), 20);
  EXPECT_EQ(feed.Resolve(TokenSource::Sampled({1}, 0)).value(), 10);
  sending.join();
  last->Close();
  EXPECT_EQ(feed.Resolve(TokenSource::Sampled({3}, 0)).status().code(),
            base::StatusCode::kUnavailable);
}

constexpr int64_t kMib = 1 << 20;

std::vector<RankReady> TwoRanks() {
  return {{.kv_bytes_per_page = 2 * kMib, .available_bytes = 100 * kMib},
          {.kv_bytes_per_page = 3 * kMib, .available_bytes = 90 * kMib}};
}

TEST(ChoosePagesTest, TakesAShareOfWhatTheTightestRankSees) {
  // Both live in one host's memory: a page costs 5 MiB of the 90.
  EXPECT_EQ(ChoosePages({.memory_fraction = 0.5}, TwoRanks(), 64).value(), 9);
  EXPECT_EQ(ChoosePages({.memory_fraction = 1, .most_tokens = 129}, TwoRanks(), 64).value(), 3);
}

TEST(ChoosePagesTest, GivesWhatWasAskedForOrSaysWhatFits) {
  EXPECT_EQ(ChoosePages({.max_total_tokens = 65}, TwoRanks(), 64).value(), 2);
  EXPECT_EQ(ChoosePages({.max_total_tokens = 18 * 64}, TwoRanks(), 64).value(), 18);
  const auto refused = ChoosePages({.max_total_tokens = 18 * 64 + 1}, TwoRanks(), 64);
  EXPECT_EQ(refused.status().code(), base::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("ask for at most 1152"));
  EXPECT_THAT(ChoosePages({.memory_fraction = 0.05}, TwoRanks(), 64).status().message(),
              HasSubstr("not enough for one page of 64 tokens"));
}

}  // namespace
}  // namespace longspan::runtime
