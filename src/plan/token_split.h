// Which rows of a step each context-parallel rank computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longspan::plan {

// How the rows of a slice are dealt to N ranks. Causal attention costs all of them about the same.
enum class TokenSplit : uint8_t {
  kInterleave,  // row i to rank i mod N
  kZigzag,      // of 2N blocks, the first ones a row longer, block r and block 2N - 1 - r to rank r
};

// One of `size` ranks of a stage that divide the rows of every step among themselves.
struct ContextShare {
  int rank = 0;
  int size = 1;
  TokenSplit split = TokenSplit::kInterleave;

  friend bool operator==(const ContextShare&, const ContextShare&) = default;
};

// `rows` consecutive positions from `begin` on.
struct SliceRows {
  int64_t begin = 0;
  int64_t rows = 0;
};

// Of every rank its rows, counted through the slices in order, ascending; it may have none. Slices
// of fewer rows than the split has places for (N, or 2N blocks) stay whole, decoding rows among
// them. Every slice is dealt to the ranks in the order of what they have already - fewest rows,
// then least attention, then the lower number -, so that no slice's remainder adds to another's.
std::vector<std::vector<int32_t>> SplitRows(std::span<const SliceRows> slices, TokenSplit split,
                                            int ranks);

// The most rows that a rank has of a step of up to `rows`.
int64_t MostRowsOfRank(int64_t rows, TokenSplit split, int ranks);

}  // namespace longspan::plan
