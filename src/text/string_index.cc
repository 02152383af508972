#include "text/string_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace longspan::text {

uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  uint64_t hash = bytes.size() * kMultiplier;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t size = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), size);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
    bytes.remove_prefix(size);
  }
  return hash;
}

StringIndex::StringIndex(size_t key_count) : slots_(std::bit_ceil(2 * key_count + 2)) {}

size_t StringIndex::Locate(std::string_view key) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = HashBytes(key) & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id < 0 || std::string_view(slot.data, slot.size) == key) return i;
  }
}

bool StringIndex::Insert(std::string_view key, int32_t id) {
  Slot& slot = slots_[Locate(key)];
  if (slot.id >= 0) return false;
  slot = {key.data(), static_cast<uint32_t>(key.size()), id};
  return true;
}

std::optional<int32_t> StringIndex::Find(std::string_view key) const {
  const Slot& slot = slots_[Locate(key)];
  if (slot.id < 0) return std::nullopt;
  return slot.id;
}

}  // namespace longspan::text
