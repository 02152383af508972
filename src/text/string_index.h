// A hash table from strings to ids, filled once and then only read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace longspan::text {

// Hash of a short string.
uint64_t HashBytes(std::string_view bytes);

// Keeps views of its keys, not copies. Thread-safe once filled.
class StringIndex {
 public:
  // Room for that many keys; Insert must not be called more often.
  explicit StringIndex(size_t key_count);

  // False, with nothing changed, when the key is there already.
  bool Insert(std::string_view key, int32_t id);
  std::optional<int32_t> Find(std::string_view key) const;

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t size = 0;
    int32_t id = -1;  // negative: free
  };
  // The slot with the key, or the free one where it would go.
  size_t Locate(std::string_view key) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace longspan::text
