// Byte-pair encoding (Sennrich et al. 2016) over bytes: of all neighbouring pairs the one that was
// merged earliest in training is merged first, the leftmost of equal ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/string_index.h"

namespace longspan::text {

// `left` followed by `right` becomes `merged`.
struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

// What each pair of neighbouring tokens becomes, and how early. Immutable once built.
class BpeMergeTable {
 public:
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  struct Entry {
    uint32_t rank = kNoMerge;
    int32_t merged = -1;
  };

  // In the order of training; of equal pairs the last counts.
  explicit BpeMergeTable(std::span<const BpeMerge> merges);

  Entry Find(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t i = Start(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].entry;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    Entry entry;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t Start(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15;
    return (key ^ key >> 32) & mask_;
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

// A trained encoding. Immutable and movable.
struct Bpe {
  static constexpr int32_t kNoToken = -1;

  std::array<int32_t, 256> byte_ids;  // kNoToken where the vocabulary has no token for a byte
  BpeMergeTable merges;
  // A piece that is one of these is not merged from bytes (`ignore_merges`, otherwise empty).
  StringIndex whole_pieces{0};
  int32_t unknown_id = kNoToken;  // stands for bytes without a token
  bool fuse_unknown = false;      // one of them for a run of such bytes
};

// Encodes the pieces of one text and remembers those that it has seen. One thread; keeps a
// reference to the encoding.
class PieceEncoder {
 public:
  // `text_size`: bytes to come, about; decides how much is remembered.
  PieceEncoder(const Bpe& bpe, size_t text_size);

  // Appends the ids of a piece, which is not empty and must stay where it is while the encoder
  // lives; `ids` must be the same vector each time, and nothing may be taken out of it meanwhile.
  // InvalidArgument for a byte that has no token.
  base::Status Append(std::string_view piece, std::vector<int32_t>& ids);

 private:
  // A piece and where its ids lie in `ids`.
  struct Memory {
    std::string_view piece;
    size_t begin = 0;
    size_t count = 0;
  };
  struct Symbol {
    int32_t id;
    uint32_t previous;
    uint32_t next;
  };

  base::Status Encode(std::string_view piece, std::vector<int32_t>& ids);
  // `symbols_` := the ids of the single bytes.
  base::Status StartSymbols(std::string_view piece);
  void MergeFew();
  void MergeMany();

  const Bpe& bpe_;
  std::vector<Memory> memory_;  // by hash; a later piece takes the place of an earlier one
  std::vector<int32_t> symbols_;
  std::vector<BpeMergeTable::Entry> pairs_;  // of symbols_[i] and symbols_[i + 1]
};

}  // namespace longspan::text
