// Index selection: the best positions of every row, of a whole cache or of a part of one, over
// blocks of keys that stream by.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "backend/cpu/attention_scratch.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/isa.h"
#include "ops/backend.h"

namespace longspan::backend::cpu {
namespace {

using tensor::DType;

// Query tokens of a task, which share packed keys.
constexpr int64_t kTokens = 8;

struct Candidate {
  float score;
  int32_t position;
};

bool Before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.position < b.position;
}

// The top_k best so far among others not yet dropped. Scores come in the order of positions.
class Best {
 public:
  // Twice as many as are kept, or a block more: dropping costs a constant per candidate.
  static int64_t Capacity(int64_t top_k) { return top_k + std::max(top_k, kAttentionKeys); }

  Best() = default;
  Best(Candidate* candidates, int64_t top_k) : candidates_(candidates), top_k_(top_k) {}

  void Add(const float* scores, int64_t first_position, int64_t count) {
    if (size_ + count > Capacity(top_k_)) Drop();
    for (int64_t i = 0; i < count; ++i) {
      const float score =
          std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];
      // Of equal scores the lower position is there already.
      if (full_ && !(score > threshold_)) continue;
      candidates_[size_++] = {score, static_cast<int32_t>(first_position + i)};
    }
  }

  // Up to top_k of them, in any order.
  std::span<Candidate> Finish() {
    Drop();
    return {candidates_, static_cast<size_t>(size_)};
  }

 private:
  void Drop() {
    if (size_ <= top_k_) return;
    std::nth_element(candidates_, candidates_ + top_k_ - 1, candidates_ + size_, Before);
    size_ = top_k_;
    threshold_ = candidates_[top_k_ - 1].score;
    full_ = true;
  }

  Candidate* candidates_ = nullptr;
  int64_t top_k_ = 0;
  int64_t size_ = 0;
  bool full_ = false;  // top_k of them are above or at the threshold
  float threshold_ = 0;
};

// What a thread needs, in 32-bit words; every part is a multiple of 64 bytes.
struct Scratch {
  int64_t dim_padded;
  int64_t top_k;

  static Scratch For(int64_t dim, int64_t top_k) { return {DivideUp(dim, 16) * 16, top_k}; }

  int64_t candidates() const { return DivideUp(Best::Capacity(top_k), 8) * 8; }  // of a token
  int64_t words() const {
    return dim_padded * (kAttentionKeys + 16 + kAttentionStepRows) + kTokens * kAttentionKeys +
           kTokens * 2 * candidates();
  }
};
static_assert(sizeof(Candidate) == 8, "scratch is counted in words");

struct TaskScratch {
  Scratch sizes;
  float* words;

  uint32_t* packed_keys() const { return reinterpret_cast<uint32_t*>(words); }
  char* converted() const {
    return reinterpret_cast<char*>(words + sizes.dim_padded * kAttentionKeys);
  }
  float* wide_queries() const { return words + sizes.dim_padded * (kAttentionKeys + 16); }
  float* scores() const { return wide_queries() + sizes.dim_padded * kAttentionStepRows; }
  Candidate* candidates(int64_t token) const {
    return reinterpret_cast<Candidate*>(scores() + kTokens * kAttentionKeys) +
           token * sizes.candidates();
  }
};

// Calls write(row, best) for the rows [row, row + block.tokens).
template <typename Args, typename Write>
void FindBest(const Args& args, int64_t row, const TaskScratch& scratch, IndexBlock block,
              const Write& write) {
  const int64_t top_k = scratch.sizes.top_k;
  const int32_t* positions = args.tables.positions.template data<int32_t>() + row;
  block.queries = RowAt(args.queries, row);
  block.head_weights = args.head_weights.template row<float>(row);
  block.packed_keys = scratch.packed_keys();
  block.wide_queries = scratch.wide_queries();
  block.scores = scratch.scores();
  Best best[kTokens];
  for (int64_t token = 0; token < block.tokens; ++token)
    best[token] = Best(scratch.candidates(token), top_k);
  const auto kernel = ActiveKernels().index_scores[TypeOf(args.queries)][TypeOf(args.index_cache)];
  const int64_t keys = positions[block.tokens - 1] + int64_t{1};
  for (block.first_key = 0; block.first_key < keys; block.first_key += kAttentionKeys) {
    block.count = std::min(kAttentionKeys, keys - block.first_key);
    kernel(block);
    for (int64_t token = 0; token < block.tokens; ++token) {
      const int64_t visible =
          std::min(block.count, positions[token] + int64_t{1} - block.first_key);
      if (visible > 0)
        best[token].Add(block.scores + token * kAttentionKeys, block.first_key, visible);
    }
  }
  for (int64_t token = 0; token < block.tokens; ++token) write(row + token, best[token].Finish());
}

// The rows of a step in tiles. The first rows of a tile that see up to `fewest` keys go to
// short_row(row) without a look at a key, the best of the others to write(slice, row, best).
template <typename Args, typename ShortRow, typename Write>
void ForBestOfRows(tensor::ExecutionContext& context, const Args& args, int64_t top_k,
                   int64_t fewest, const ShortRow& short_row, const Write& write) {
  const ops::StepTables& tables = args.tables;
  if (tables.rows == 0) return;
  tensor::ThreadPool& pool = Pool(context);
  tensor::Workspace::Scope scope(context.workspace);
  const Scratch scratch = Scratch::For(args.queries.size(2), top_k);
  auto* words = scope.Take(DType::kF32, {pool.threads(), scratch.words()}).template data<float>();
  auto* zeros = scope.Take(DType::kF32, {scratch.dim_padded}).template data<float>();
  std::fill_n(zeros, scratch.dim_padded, 0.0f);
  const TokenTiles tiles(
      scope, tables, std::clamp<int64_t>(tables.rows / (int64_t{4} * pool.threads()), 1, kTokens));

  const int64_t element = tensor::SizeOf(args.queries.dtype());
  IndexBlock common;
  common.query_token_stride = args.queries.stride(0) * element;
  common.query_head_stride = args.queries.stride(1) * element;
  common.head_weights_stride = args.head_weights.stride(0);
  common.heads = args.queries.size(1);
  common.scale = args.scale;
  const auto* positions = tables.positions.template data<int32_t>();
  pool.ParallelFor(tiles.count(), [&](int64_t task, int thread) {
    // Backwards: long rows first.
    TokenTiles::Tile place = tiles.at(tiles.count() - 1 - task);
    for (; place.tokens > 0 && positions[place.row] < fewest; ++place.row, --place.tokens)
      short_row(place.row);
    if (place.tokens == 0) return;
    const TaskScratch own = {scratch, words + thread * scratch.words()};
    IndexBlock block = common;
    block.tokens = place.tokens;
    block.keys = PagedRowsOf(args.index_cache, tables, place.slice, 0);
    block.keys.converted = own.converted();
    block.keys.zeros = reinterpret_cast<const char*>(zeros);
    FindBest(args, place.row, own, block,
             [&](int64_t row, std::span<Candidate> best) { write(place.slice, row, best); });
  });
}

}  // namespace

int64_t IndexSelectWorkspaceBytes(int threads, const ops::WorkspaceShape& shape) {
  if (shape.index_top_k == 0) return 0;
  const Scratch scratch = Scratch::For(shape.index_dim, shape.index_top_k);
  return tensor::Workspace::PaddedBytes(threads * scratch.words() * 4) +
         tensor::Workspace::PaddedBytes(scratch.dim_padded * 4) + TokenTiles::Bytes(shape.rows);
}

void IndexSelect(tensor::ExecutionContext& context, const ops::IndexSelectArgs& args) {
  const int64_t top_k = args.selected.size(1);
  const auto* positions = args.tables.positions.data<int32_t>();
  ForBestOfRows(
      context, args, top_k, top_k,
      [&](int64_t row) {
        auto* selected = args.selected.row<int32_t>(row);
        const int64_t length = positions[row] + int64_t{1};
        std::iota(selected, selected + length, 0);
        std::fill(selected + length, selected + top_k, -1);
      },
      [&](int64_t /*slice*/, int64_t row, std::span<Candidate> best) {
        auto* selected = args.selected.row<int32_t>(row);
        std::transform(best.begin(), best.end(), selected,
                       [](const Candidate& c) { return c.position; });
        std::sort(selected, selected + top_k);
      });
}

void IndexCandidates(tensor::ExecutionContext& context, const ops::IndexCandidatesArgs& args) {
  const int64_t top_k = args.positions.size(1);
  const int64_t page_size = args.index_cache.size(2);
  const auto pad = [&](int64_t row, int64_t count) {
    auto* scores = args.scores.row<float>(row);
    auto* positions = args.positions.row<int32_t>(row);
    std::fill(scores + count, scores + top_k, -std::numeric_limits<float>::infinity());
    std::fill(positions + count, positions + top_k, -1);
  };
  ForBestOfRows(
      context, args, top_k, 0, [&](int64_t row) { pad(row, 0); },
      [&](int64_t slice, int64_t row, std::span<Candidate> best) {
        std::sort(best.begin(), best.end(), Before);
        const auto* pages = args.page_indices.row<int32_t>(slice);
        auto* scores = args.scores.row<float>(row);
        auto* positions = args.positions.row<int32_t>(row);
        for (const Candidate& candidate : best) {
          *scores++ = candidate.score;
          *positions++ = static_cast<int32_t>(pages[candidate.position / page_size] * page_size +
                                              candidate.position % page_size);
        }
        pad(row, static_cast<int64_t>(best.size()));
      });
}

}  // namespace longspan::backend::cpu
