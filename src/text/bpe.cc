#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace longspan::text {
namespace {

using base::OkStatus;
using base::Status;

// Up to here looking at all pairs for each merge is faster than a heap.
constexpr size_t kFewSymbols = 48;
constexpr size_t kMaxMemory = 1 << 16;

// A possible merge in the heap. It has expired when its pair is no longer there.
struct Candidate {
  uint32_t rank;
  uint32_t position;
  int32_t merged;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

BpeMergeTable::BpeMergeTable(std::span<const BpeMerge> merges)
    : slots_(std::bit_ceil(2 * merges.size() + 2)), mask_(slots_.size() - 1) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = Key(merges[rank].left, merges[rank].right);
    size_t i = Start(key);
    while (slots_[i].key != key && slots_[i].key != kFree) i = (i + 1) & mask_;
    slots_[i] = {key, {static_cast<uint32_t>(rank), merges[rank].merged}};
  }
}

PieceEncoder::PieceEncoder(const Bpe& bpe, size_t text_size)
    : bpe_(bpe), memory_(std::min(kMaxMemory, std::bit_ceil(text_size / 8 + 1))) {}

Status PieceEncoder::Append(std::string_view piece, std::vector<int32_t>& ids) {
  Memory& memory = memory_[HashBytes(piece) & (memory_.size() - 1)];
  const size_t begin = ids.size();
  if (memory.piece == piece) {
    ids.resize(begin + memory.count);
    std::copy_n(ids.begin() + static_cast<ptrdiff_t>(memory.begin), memory.count,
                ids.begin() + static_cast<ptrdiff_t>(begin));
    return OkStatus();
  }
  LONGSPAN_RETURN_IF_ERROR(Encode(piece, ids));
  memory = {piece, begin, ids.size() - begin};
  return OkStatus();
}

Status PieceEncoder::Encode(std::string_view piece, std::vector<int32_t>& ids) {
  if (const auto id = bpe_.whole_pieces.Find(piece)) {
    ids.push_back(*id);
    return OkStatus();
  }
  LONGSPAN_RETURN_IF_ERROR(StartSymbols(piece));
  if (symbols_.size() <= kFewSymbols) {
    MergeFew();
  } else {
    MergeMany();
  }
  ids.insert(ids.end(), symbols_.begin(), symbols_.end());
  return OkStatus();
}

Status PieceEncoder::StartSymbols(std::string_view piece) {
  symbols_.clear();
  bool after_unknown = false;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    const int32_t id = bpe_.byte_ids[byte];
    if (id != Bpe::kNoToken) {
      symbols_.push_back(id);
    } else if (bpe_.unknown_id == Bpe::kNoToken) {
      return base::InvalidArgument("the tokenizer has no token for the byte 0x{:02X}", byte);
    } else if (!(after_unknown && bpe_.fuse_unknown)) {
      symbols_.push_back(bpe_.unknown_id);
    }
    after_unknown = id == Bpe::kNoToken;
  }
  return OkStatus();
}

void PieceEncoder::MergeFew() {
  pairs_.clear();
  for (size_t i = 0; i + 1 < symbols_.size(); ++i)
    pairs_.push_back(bpe_.merges.Find(symbols_[i], symbols_[i + 1]));
  while (!pairs_.empty()) {
    const auto best = std::ranges::min_element(pairs_, {}, &BpeMergeTable::Entry::rank);
    if (best->rank == BpeMergeTable::kNoMerge) return;
    const auto i = best - pairs_.begin();
    symbols_[static_cast<size_t>(i)] = best->merged;
    symbols_.erase(symbols_.begin() + i + 1);
    pairs_.erase(best);
    const auto at = static_cast<size_t>(i);
    if (at > 0) pairs_[at - 1] = bpe_.merges.Find(symbols_[at - 1], symbols_[at]);
    if (at < pairs_.size()) pairs_[at] = bpe_.merges.Find(symbols_[at], symbols_[at + 1]);
  }
}

void PieceEncoder::MergeMany() {
  constexpr uint32_t kNone = UINT32_MAX;
  constexpr int32_t kGone = -1;
  const auto count = static_cast<uint32_t>(symbols_.size());
  std::vector<Symbol> chain(count);
  for (uint32_t i = 0; i < count; ++i)
    chain[i] = {symbols_[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};

  std::vector<Candidate> heap_storage;
  heap_storage.reserve(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap(
      {}, std::move(heap_storage));
  const auto pair_at = [&](uint32_t i) {
    const bool there = i != kNone && chain[i].id != kGone && chain[i].next != kNone;
    return there ? bpe_.merges.Find(chain[i].id, chain[chain[i].next].id) : BpeMergeTable::Entry{};
  };
  const auto push = [&](uint32_t i) {
    const auto pair = pair_at(i);
    if (pair.rank != BpeMergeTable::kNoMerge) heap.push({pair.rank, i, pair.merged});
  };
  for (uint32_t i = 0; i < count; ++i) push(i);

  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    if (pair_at(best.position).rank != best.rank) continue;
    Symbol& left = chain[best.position];
    Symbol& right = chain[left.next];
    left.id = best.merged;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kNone) chain[left.next].previous = best.position;
    push(left.previous);
    push(best.position);
  }

  symbols_.clear();
  for (uint32_t i = 0; i != kNone; i = chain[i].next) symbols_.push_back(chain[i].id);
}

}  // namespace longspan::text
