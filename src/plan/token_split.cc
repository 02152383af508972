#include "plan/token_split.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace longspan::plan {
namespace {

// Slices of fewer rows stay whole.
int64_t FewestRowsToSplit(TokenSplit split, int ranks) {
  return split == TokenSplit::kZigzag ? int64_t{2} * ranks : ranks;
}

class Dealer {
 public:
  Dealer(TokenSplit split, int ranks)
      : split_(split), rows_(static_cast<size_t>(ranks)), work_(static_cast<size_t>(ranks)) {}

  void Deal(const SliceRows& slice) {
    if (slice.rows < FewestRowsToSplit(split_, ranks())) {
      Give(Order().front(), slice, 0, slice.rows, 1);
    } else if (split_ == TokenSplit::kInterleave) {
      const std::vector<size_t> order = Order();
      for (int64_t i = 0; i < ranks(); ++i)
        Give(order[static_cast<size_t>(i)], slice, i, slice.rows, ranks());
    } else {
      DealBlocks(slice);
    }
    first_row_ += slice.rows;
  }

  std::vector<std::vector<int32_t>> Take() { return std::move(rows_); }

 private:
  int64_t ranks() const { return static_cast<int64_t>(rows_.size()); }

  void DealBlocks(const SliceRows& slice) {
    const int64_t blocks = 2 * ranks();
    const int64_t longer = slice.rows % blocks;
    const auto begin = [&](int64_t block) {
      return block * (slice.rows / blocks) + std::min(block, longer);
    };
    // Above N longer blocks it is the last ranks that have two of them.
    const std::vector<size_t> order = Order(/*fewest_last=*/longer > ranks());
    for (int64_t i = 0; i < ranks(); ++i)
      for (const int64_t block : {i, blocks - 1 - i})
        Give(order[static_cast<size_t>(i)], slice, begin(block), begin(block + 1), 1);
  }

  // Rows begin, begin + step ... below end of the slice.
  void Give(size_t rank, const SliceRows& slice, int64_t begin, int64_t end, int64_t step) {
    for (int64_t row = begin; row < end; row += step) {
      rows_[rank].push_back(static_cast<int32_t>(first_row_ + row));
      work_[rank] += slice.begin + row + 1;
    }
  }

  // The ranks by what they have; of equal ones the lower first.
  std::vector<size_t> Order(bool fewest_last = false) const {
    std::vector<size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto load = [&](size_t rank) { return std::pair(rows_[rank].size(), work_[rank]); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return fewest_last ? load(b) < load(a) : load(a) < load(b);
    });
    return order;
  }

  const TokenSplit split_;
  std::vector<std::vector<int32_t>> rows_;  // by rank
  std::vector<int64_t> work_;               // by rank: positions that its rows attend to
  int64_t first_row_ = 0;                   // of the next slice
};

}  // namespace

std::vector<std::vector<int32_t>> SplitRows(std::span<const SliceRows> slices, TokenSplit split,
                                            int ranks) {
  Dealer dealer(split, ranks);
  for (const SliceRows& slice : slices) dealer.Deal(slice);
  return dealer.Take();
}

int64_t MostRowsOfRank(int64_t rows, TokenSplit split, int ranks) {
  // No rank gets further ahead of another than by the longest slice that stays whole.
  const int64_t ahead = std::max<int64_t>(1, FewestRowsToSplit(split, ranks) - 1);
  return std::min(rows, (rows + (ranks - 1) * ahead) / ranks);
}

}  // namespace longspan::plan
