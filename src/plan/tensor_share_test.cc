#include "plan/tensor_share.h"

#include <set>

#include <gmock/gmock.h>

namespace longspan::plan {
namespace {

using spec::FeedForwardKind;
using testing::HasSubstr;

spec::ModelSpec Grouped(int heads, int kv_heads) {
  return {.vocab_size = 960,
          .hidden_size = 64,
          .intermediate_size = 480,
          .attention = {.heads = heads, .kv_heads = kv_heads, .head_dim = 8},
          .moe = {.experts = 12, .experts_per_token = 2, .intermediate_size = 240},
          .feed_forward = {FeedForwardKind::kDense, FeedForwardKind::kMoe}};
}

TEST(TensorShareTest, PiecesFollowOneAnotherAndCoverAll) {
  for (int size = 1; size <= 24; ++size) {
    for (int pieces = 1; pieces <= size; ++pieces) {
      if (size % pieces != 0) continue;
      std::vector<int> owners(pieces);
      int before = 0;
      for (int rank = 0; rank < size; ++rank) {
        const int piece = TensorShare{rank, size}.PieceOf(pieces);
        ASSERT_TRUE(piece == before || piece == before + 1);
        before = piece;
        ++owners[static_cast<size_t>(piece)];
      }
      for (const int count : owners) EXPECT_EQ(count, size / pieces);
    }
  }
}

// Every query head finds its KV head at its own rank, at the place where attention looks for it.
TEST(TensorShareTest, QueryHeadsMeetTheirKvHeads) {
  for (const int kv_heads : {1, 2, 3, 4, 6, 8}) {
    for (const int group : {1, 2, 3, 6}) {
      const spec::ModelSpec model = Grouped(kv_heads * group, kv_heads);
      for (int size = 1; size <= model.attention.heads; ++size) {
        if (!CheckTensorShares(model, size).ok()) continue;
        const spec::ModelSpec share = ShareOf(model, size);
        ASSERT_EQ(share.attention.heads % share.attention.kv_heads, 0);
        const int local_group = share.attention.heads / share.attention.kv_heads;
        std::set<int> kept;
        for (int rank = 0; rank < size; ++rank) {
          const TensorShare place{rank, size};
          const int first_kv =
              place.PieceOf(size / share.attention.kv_sharers) * share.attention.kv_heads;
          for (int head = 0; head < share.attention.heads; ++head) {
            const int global = rank * share.attention.heads + head;
            EXPECT_EQ(first_kv + head / local_group, global / group);
          }
          for (int head = 0; head < share.attention.kv_heads; ++head) kept.insert(first_kv + head);
        }
        EXPECT_EQ(kept.size(), static_cast<size_t>(kv_heads));
      }
    }
  }
}

TEST(TensorShareTest, AShareIsAModelOfItsOwn) {
  const spec::ModelSpec share = ShareOf(Grouped(8, 2), 4);
  EXPECT_EQ(share.attention.heads, 2);
  EXPECT_EQ(share.attention.kv_heads, 1);
  EXPECT_EQ(share.intermediate_size, 120);
  EXPECT_EQ(share.moe.intermediate_size, 60);
  EXPECT_EQ(share.moe.experts, 12);
  EXPECT_EQ(share.vocab_size, 240);
  EXPECT_EQ(share.hidden_size, 64);
}

TEST(TensorShareTest, LatentAttentionDividesItsHeadsAndNothingElse) {
  spec::ModelSpec model = Grouped(1, 1);
  model.latent_attention = spec::LatentAttentionSpec{.heads = 16,
                                                     .query_rank = 24,
                                                     .latent_rank = 32,
                                                     .nope_dim = 8,
                                                     .rope_dim = 4,
                                                     .value_dim = 8};
  EXPECT_TRUE(CheckTensorShares(model, 8).ok());
  const spec::ModelSpec share = ShareOf(model, 8);
  EXPECT_EQ(share.latent_attention->heads, 2);
  EXPECT_EQ(share.latent_attention->query_rank, 24);
  EXPECT_EQ(share.latent_attention->latent_rank, 32);
}

TEST(TensorShareTest, RefusalsNameWhatWouldDo) {
  const auto message = [](const spec::ModelSpec& model, int size) {
    return CheckTensorShares(model, size).message();
  };
  EXPECT_EQ(message(Grouped(8, 8), 6),
            "--tp-size 6 does not divide the 8 attention heads: use --tp-size 4");
  EXPECT_EQ(message(Grouped(12, 4), 6),
            "--tp-size 6 is neither a divisor nor a multiple of the 4 KV heads: use --tp-size 4");
  spec::ModelSpec odd = Grouped(8, 8);
  odd.vocab_size = 962;
  EXPECT_THAT(message(odd, 4), HasSubstr("962 tokens of the vocabulary: use --tp-size 2"));
  odd = Grouped(8, 8);
  odd.intermediate_size = 481;
  EXPECT_THAT(message(odd, 8), HasSubstr("481 columns of a dense layer: use --tp-size 1"));
  odd = Grouped(8, 8);
  odd.moe.intermediate_size = 242;
  EXPECT_THAT(message(odd, 4), HasSubstr("242 columns of an expert: use --tp-size 2"));
  // What the model does not have is not asked.
  odd.feed_forward = {FeedForwardKind::kDense};
  EXPECT_TRUE(CheckTensorShares(odd, 4).ok());
}

}  // namespace
}  // namespace longspan::plan
