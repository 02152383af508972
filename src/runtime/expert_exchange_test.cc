// Rows that go to the ranks of their experts and come back, with the ranks of a stage as threads.
#include "model/expert_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "backend/reference/reference_backend.h"
#include "base/mix_bits.h"
#include "comm/in_process/in_process.h"
#include "plan/exchange_volume.h"
#include "runtime/rank_groups.h"

namespace longspan::runtime {
namespace {

using model::ExpertExchange;
using tensor::DType;
using tensor::View;

constexpr int kExperts = 8;
constexpr int kHidden = 12;

// Which expert a row's choice is.
using Routing = std::function<int(int64_t row, int choice)>;

struct Case {
  const char* name;
  spec::Mesh mesh;
  std::vector<int64_t> rows;  // by context-parallel rank
  int choices;
  Routing routing;
};

int Spread(int64_t row, int choice) {
  return static_cast<int>((base::MixBits(static_cast<uint64_t>(row) + 1) + 3u * choice) % kExperts);
}
int AlwaysTheFirst(int64_t /*row*/, int choice) { return choice; }
int AlwaysTheLast(int64_t /*row*/, int /*choice*/) { return kExperts - 1; }

std::vector<Case> Cases() {
  return {{"tp2", {.tp = 2, .ep = 2}, {50}, 3, Spread},
          {"tp4_ep2", {.tp = 4, .ep = 2}, {50}, 2, Spread},
          {"tp4_ep4", {.tp = 4, .ep = 4}, {1}, 4, Spread},
          {"cp3_unequal", {.cp = 4, .ep = 4}, {7, 0, 50, 1}, 3, Spread},
          {"cp2_tp2_ep4", {.cp = 2, .tp = 2, .ep = 4}, {9, 30}, 2, Spread},
          {"cp2_tp2_ep2", {.cp = 2, .tp = 2, .ep = 2}, {9, 30}, 2, Spread},
          {"one_expert", {.cp = 2, .ep = 2}, {5, 11}, 1, AlwaysTheLast},
          {"one_rank", {.cp = 2, .tp = 2, .ep = 4}, {5, 11}, 2, AlwaysTheFirst},
          {"every_expert", {.tp = 4, .ep = 4}, {20}, kExperts, AlwaysTheFirst},
          {"no_row", {.cp = 2, .ep = 2}, {0, 0}, 2, Spread}};
}

float ValueOf(int64_t row, int64_t column) {
  const uint64_t bits = base::MixBits(static_cast<uint64_t>(row * kHidden + column) + 7);
  return static_cast<float>(bits % 2001) / 1000.0F - 1;
}
float WeightOf(int choice) { return 1.0F / static_cast<float>(choice + 2); }

// The rows of all lanes are numbered through: those of a context-parallel rank follow those of the
// one before it. A row's number is its position.
int64_t FirstRow(const Case& c, int cp_rank) {
  int64_t first = 0;
  for (int i = 0; i < cp_rank; ++i) first += c.rows[static_cast<size_t>(i)];
  return first;
}

// A stage's lanes with links between them.
std::vector<RankLinks> Connect(int lanes) {
  std::vector<RankLinks> links(static_cast<size_t>(lanes));
  for (int a = 0; a < lanes; ++a) {
    for (int b = a + 1; b < lanes; ++b) {
      auto [here, there] = comm::CreateInProcessLinkPair();
      links[a].stage_peers.push_back(std::move(here));
      links[b].stage_peers.push_back(std::move(there));
    }
  }
  return links;
}

// What a lane ends with.
struct Outcome {
  std::vector<float> out;  // [rows, hidden]
  int64_t own = 0;         // rows that it sent
  int64_t came = 0;        // rows from other ranks
  int64_t left = 0;        // rows to other ranks
  int64_t received_bytes = 0;
  base::Status status;
};

// Expert e multiplies a row by e + 1; lanes that have a part of its columns make that part of it.
void RunExperts(const ExpertExchange& exchange, const plan::ExpertShare& share) {
  const auto& choices = exchange.choices();
  int64_t pairs = 0;
  for (int64_t row = 0; row < exchange.rows().size(0); ++row) {
    float factor = 0;
    for (int choice = 0; choice < choices.experts.size(1); ++choice) {
      const int local = choices.experts.row<int32_t>(row)[choice];
      if (local < 0) continue;
      ASSERT_LT(local, share.count(kExperts));
      ++pairs;
      factor += choices.weights.row<float>(row)[choice] *
                static_cast<float>(share.first(kExperts) + local + 1);
    }
    ASSERT_GT(factor, 0);  // a row that comes has an expert here
    for (int column = 0; column < kHidden; ++column)
      exchange.results().row<float>(row)[column] =
          exchange.rows().row<float>(row)[column] * factor / static_cast<float>(share.column_parts);
  }
  EXPECT_EQ(pairs, choices.pairs);
}

Outcome RunLane(const Case& c, int rank, const RankLinks& links) {
  const ops::Backend& backend = backend::reference::ReferenceBackend();
  const RankConfig config = {.mesh = c.mesh, .rank = rank};
  const plan::ExpertShare share = config.expert_share();
  RankGroups groups(config, links);
  const auto queue = backend.CreateQueue({}).value();
  const int64_t rows = c.rows[static_cast<size_t>(c.mesh.cp_rank_of(rank))];
  const int64_t first = FirstRow(c, c.mesh.cp_rank_of(rank));
  const ExpertExchange::Shape shape = {
      .share = share, .experts = kExperts, .choices = c.choices, .hidden = kHidden};
  const int64_t most = *std::max_element(c.rows.begin(), c.rows.end());
  tensor::Workspace workspace(
      backend.Allocate(ExpertExchange::ScratchBytes(shape, most, DType::kF32) + 64).value());
  tensor::ExecutionContext context{*queue, workspace, true};

  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::vector<float> x(static_cast<size_t>(rows * kHidden));
  for (int64_t row = 0; row < rows; ++row) {
    positions[row] = static_cast<int32_t>(first + row);
    for (int column = 0; column < kHidden; ++column)
      x[row * kHidden + column] = ValueOf(first + row, column);
  }
  ops::StepTables tables;
  tables.rows = rows;
  tables.positions = View(positions.data(), DType::kI32, {rows});
  const model::Step step{context, backend.ops(), groups,   tables, {}, {}, {},
                         {},      &backend,      positions};

  Outcome outcome;
  outcome.out.assign(x.size(), -1);
  ExpertExchange exchange(step, shape, View(x.data(), DType::kF32, {rows, kHidden}));
  outcome.own = exchange.own_rows().size(0);
  std::vector<int32_t> ids;
  std::vector<float> weights;
  for (int64_t row = first; row < first + rows; ++row) {
    if (!share.Sends(static_cast<int32_t>(row))) continue;
    std::map<int, bool> owners;
    for (int choice = 0; choice < c.choices; ++choice) {
      ids.push_back(c.routing(row, choice));
      weights.push_back(WeightOf(choice));
      owners[ids.back() / share.count(kExperts)] = true;
    }
    outcome.left += std::ssize(owners) - (owners.contains(share.rank) ? 1 : 0);
    outcome.came -= owners.contains(share.rank) ? 1 : 0;
  }
  exchange.Send({.experts = View(ids.data(), DType::kI32, {outcome.own, c.choices}),
                 .weights = View(weights.data(), DType::kF32, {outcome.own, c.choices}),
                 .pairs = outcome.own * c.choices});
  exchange.Receive();
  outcome.came += exchange.rows().size(0);
  RunExperts(exchange, share);
  exchange.AddUp(View(outcome.out.data(), DType::kF32, {rows, kHidden}));
  outcome.status = groups.status();
  outcome.received_bytes = groups.expert_group()->received_bytes();
  return outcome;
}

std::vector<Outcome> RunStage(const Case& c) {
  const int lanes = c.mesh.stage_ranks();
  const std::vector<RankLinks> links = Connect(lanes);
  std::vector<Outcome> outcomes(static_cast<size_t>(lanes));
  std::vector<std::thread> threads;
  for (int lane = 0; lane < lanes; ++lane)
    threads.emplace_back([&, lane] { outcomes[lane] = RunLane(c, lane, links[lane]); });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& lane : outcomes) EXPECT_TRUE(lane.status.ok()) << lane.status.message();
  return outcomes;
}

class ExpertExchangeTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(, ExpertExchangeTest, ::testing::ValuesIn(Cases()),
                         [](const auto& param) { return std::string(param.param.name); });

// What the tensor-parallel ranks of a context-parallel one add up is every row's sum over its
// experts, and no lane sends a row that another one of them sends.
TEST_P(ExpertExchangeTest, SumsAreThoseOfAllExperts) {
  const Case& c = GetParam();
  const auto outcomes = RunStage(c);
  for (int cp = 0; cp < c.mesh.cp; ++cp) {
    const int64_t rows = c.rows[static_cast<size_t>(cp)];
    int64_t own = 0;
    for (int tp = 0; tp < c.mesh.tp; ++tp) own += outcomes[cp * c.mesh.tp + tp].own;
    EXPECT_EQ(own, rows * plan::ExpertShareOf(c.mesh, 0).column_parts);
    for (int64_t row = 0; row < rows; ++row) {
      float factor = 0;
      for (int choice = 0; choice < c.choices; ++choice)
        factor +=
            WeightOf(choice) * static_cast<float>(c.routing(FirstRow(c, cp) + row, choice) + 1);
      for (int column = 0; column < kHidden; ++column) {
        float sum = 0;
        for (int tp = 0; tp < c.mesh.tp; ++tp)
          sum += outcomes[cp * c.mesh.tp + tp].out[row * kHidden + column];
        const float want = factor * ValueOf(FirstRow(c, cp) + row, column);
        ASSERT_NEAR(sum, want, 1e-5 * (1 + std::abs(want))) << "row " << row;
      }
    }
  }
}

TEST_P(ExpertExchangeTest, EveryRunHasTheSameBits) {
  const auto once = RunStage(GetParam());
  const auto again = RunStage(GetParam());
  for (size_t lane = 0; lane < once.size(); ++lane) EXPECT_EQ(once[lane].out, again[lane].out);
}

TEST_P(ExpertExchangeTest, BytesAreThoseOfTheFormula) {
  const Case& c = GetParam();
  int64_t came = 0;
  int64_t left = 0;
  for (const Outcome& lane : RunStage(c)) {
    EXPECT_EQ(
        lane.received_bytes,
        plan::ExpertLayerBytes(
            {.ranks = c.mesh.ep, .hidden = kHidden, .element = sizeof(float), .choices = c.choices},
            lane.came, lane.left));
    came += lane.came;
    left += lane.left;
  }
  EXPECT_EQ(came, left);
}

// Ranks that wait for one that has gone learn of it, each of them.
TEST(ExpertExchangeFailureTest, ALostRankEndsTheWaitOfAll) {
  const spec::Mesh mesh = {.tp = 3, .ep = 3};
  const std::vector<RankLinks> links = Connect(3);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 2; ++lane) {
    threads.emplace_back([&, lane] {
      RankGroups groups({.mesh = mesh, .rank = lane}, links[lane]);
      std::vector<int64_t> values(6, lane);
      std::vector<std::span<const std::byte>> outgoing;
      std::vector<std::span<std::byte>> incoming;
      for (size_t peer = 0; peer < 3; ++peer) {
        outgoing.push_back(std::as_bytes(std::span(values).subspan(peer, 1)));
        incoming.push_back(std::as_writable_bytes(std::span(values).subspan(3 + peer, 1)));
      }
      groups.ExchangeWithExperts(outgoing, incoming);
      EXPECT_FALSE(groups.AwaitExperts());
      EXPECT_EQ(groups.status().code(), base::StatusCode::kUnavailable);
      // What follows does nothing.
      groups.ExchangeWithExperts(outgoing, incoming);
      EXPECT_FALSE(groups.AwaitExperts());
    });
  }
  links[2].Close();
  for (std::thread& thread : threads) thread.join();
}

// Rows that were announced and do not come are none.
TEST(ExpertExchangeFailureTest, ARankMayGoAfterItsAnnouncement) {
  const Case c = {"", {.tp = 2, .ep = 2}, {50}, 2, Spread};
  const std::vector<RankLinks> links = Connect(2);
  std::thread lost([&] {
    RankGroups groups({.mesh = c.mesh, .rank = 1}, links[1]);
    std::array<int32_t, 2> announced = {7, 9};  // rows and pairs
    std::array<int32_t, 2> other = {};
    std::array<int32_t, 2> own = {};
    const std::span<const std::byte> bytes = std::as_bytes(std::span(announced));
    groups.TellExperts(std::vector{bytes, bytes},
                       std::vector<std::span<std::byte>>{std::as_writable_bytes(std::span(other)),
                                                         std::as_writable_bytes(std::span(own))});
    EXPECT_TRUE(groups.AwaitExperts());
    EXPECT_GT(other[0], 0);
    links[1].Close();
  });
  const Outcome outcome = RunLane(c, 0, links[0]);
  lost.join();
  EXPECT_EQ(outcome.status.code(), base::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace longspan::runtime
