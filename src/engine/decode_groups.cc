#include "engine/decode_groups.h"

#include <algorithm>

namespace longspan::engine {
namespace {

bool Smaller(const std::vector<Sequence*>& a, const std::vector<Sequence*>& b) {
  return a.size() < b.size();
}

}  // namespace

void DecodeGroups::Join(Sequence& sequence) {
  const auto smallest = std::min_element(groups_.begin(), groups_.end(), Smaller);
  Add(sequence, static_cast<size_t>(smallest - groups_.begin()));
}

void DecodeGroups::Leave(Sequence& sequence) {
  if (sequence.group < 0) return;
  const auto left = static_cast<size_t>(sequence.group);
  Remove(sequence);
  const auto largest = std::max_element(groups_.begin(), groups_.end(), Smaller);
  if (largest->size() < groups_[left].size() + 2) return;
  Sequence& youngest = *largest->back();
  Remove(youngest);
  Add(youngest, left);
}

int DecodeGroups::in_use() const { return static_cast<int>(std::min<int64_t>(members_, groups())); }

void DecodeGroups::Add(Sequence& sequence, size_t group) {
  sequence.group = static_cast<int>(group);
  groups_[group].push_back(&sequence);
  ++members_;
}

void DecodeGroups::Remove(Sequence& sequence) {
  auto& group = groups_[static_cast<size_t>(sequence.group)];
  group.erase(std::find(group.begin(), group.end(), &sequence));
  sequence.group = -1;
  --members_;
}

}  // namespace longspan::engine
