#include "text/bpe.h"

#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::text {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

// Bytes are their own ids; merged tokens are numbered from 256 on.
Bpe MakeBpe(const std::vector<BpeMerge>& merges) {
  Bpe bpe{.byte_ids = {}, .merges = BpeMergeTable(merges)};
  for (int32_t byte = 0; byte < 256; ++byte) bpe.byte_ids[static_cast<size_t>(byte)] = byte;
  return bpe;
}

Ids Encode(const Bpe& bpe, std::string_view piece) {
  Ids ids;
  PieceEncoder encoder(bpe, piece.size());
  EXPECT_TRUE(encoder.Append(piece, ids).ok());
  return ids;
}

// The definition, as plain as can be.
Ids EncodeNaively(const Bpe& bpe, std::string_view piece) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best = 0;
    BpeMergeTable::Entry merge;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto entry = bpe.merges.Find(ids[i], ids[i + 1]);
      if (entry.rank < merge.rank) {
        merge = entry;
        best = i;
      }
    }
    if (merge.rank == BpeMergeTable::kNoMerge) return ids;
    ids[best] = merge.merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeTest, TheEarliestMergeGoesFirstAndTheLeftmostOfEqualOnes) {
  const Bpe bpe = MakeBpe({{'b', 'c', 256}, {'a', 'b', 257}, {'a', 'a', 258}});
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(Encode(bpe, "ab"), ElementsAre(257));
  EXPECT_THAT(Encode(bpe, "aaa"), ElementsAre(258, 'a'));
  EXPECT_THAT(Encode(bpe, "x"), ElementsAre('x'));
}

TEST(BpeTest, OfEqualPairsTheLastCounts) {
  const Bpe bpe = MakeBpe({{'a', 'b', 256}, {'b', 'c', 257}, {'a', 'b', 256}});
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre('a', 257));
}

TEST(BpeTest, ShortAndLongPiecesFollowTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    // Random merges over three letters, each of tokens that exist already.
    std::vector<BpeMerge> merges;
    Ids tokens = {'a', 'b', 'c'};
    for (int32_t id = 256; id < 296; ++id) {
      merges.push_back({tokens[random() % tokens.size()], tokens[random() % tokens.size()], id});
      tokens.push_back(id);
    }
    const Bpe bpe = MakeBpe(merges);
    for (const size_t size : {1, 2, 7, 47, 48, 49, 50, 200, 500}) {
      std::string piece;
      while (piece.size() < size) piece.push_back(static_cast<char>('a' + random() % 3));
      EXPECT_EQ(Encode(bpe, piece), EncodeNaively(bpe, piece)) << piece;
    }
  }
}

TEST(BpeTest, ARunOfOneLetterIsNotQuadratic) {
  std::vector<BpeMerge> merges = {{'a', 'a', 256}};
  for (int32_t id = 257; id < 262; ++id) merges.push_back({id - 1, id - 1, id});
  const Bpe bpe = MakeBpe(merges);
  const std::string piece(1 << 20, 'a');
  EXPECT_EQ(Encode(bpe, piece), Ids((1 << 20) / 64, 261));
}

TEST(BpeTest, RepeatedPiecesGiveTheSameIds) {
  const Bpe bpe = MakeBpe({{'a', 'b', 256}});
  // A table of one place, so that pieces push each other out.
  PieceEncoder encoder(bpe, 0);
  Ids ids;
  for (const char* piece : {"abc", "abc", "b", "abc", "abc"})
    ASSERT_TRUE(encoder.Append(piece, ids).ok());
  EXPECT_THAT(ids, ElementsAre(256, 'c', 256, 'c', 'b', 256, 'c', 256, 'c'));
}

TEST(BpeTest, WholePiecesAreNotMerged) {
  Bpe bpe = MakeBpe({{'a', 'b', 256}});
  bpe.whole_pieces = StringIndex(1);
  bpe.whole_pieces.Insert("abc", 300);
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre(300));
  EXPECT_THAT(Encode(bpe, "abcd"), ElementsAre(256, 'c', 'd'));
}

TEST(BpeTest, BytesWithoutATokenAreErrorsOrUnknown) {
  Bpe bpe = MakeBpe({});
  bpe.byte_ids['x'] = Bpe::kNoToken;
  Ids ids;
  const auto status = PieceEncoder(bpe, 3).Append("axb", ids);
  EXPECT_EQ(status.code(), base::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the tokenizer has no token for the byte 0x78");
  bpe.unknown_id = 9;
  EXPECT_THAT(Encode(bpe, "axxb"), ElementsAre('a', 9, 9, 'b'));
  bpe.fuse_unknown = true;
  EXPECT_THAT(Encode(bpe, "axxbx"), ElementsAre('a', 9, 'b', 9));
}

}  // namespace
}  // namespace longspan::text
