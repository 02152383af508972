// Which decoding sequences go through the stages together.
#pragma once

#include <vector>

#include "engine/sequence.h"

namespace longspan::engine {

// Up to P groups, so that every stage has one to work on. Sequences join and leave at any step; no
// two groups in use differ by more than one member, and as many are in use as there are members.
class DecodeGroups {
 public:
  explicit DecodeGroups(int groups) : groups_(static_cast<size_t>(groups)) {}

  // The sequence must outlive its membership.
  void Join(Sequence& sequence);
  // Without effect for one that is no member.
  void Leave(Sequence& sequence);

  int groups() const { return static_cast<int>(groups_.size()); }
  int in_use() const;
  int64_t members() const { return members_; }
  const std::vector<Sequence*>& group(int index) const {
    return groups_[static_cast<size_t>(index)];
  }

 private:
  void Add(Sequence& sequence, size_t group);
  void Remove(Sequence& sequence);

  std::vector<std::vector<Sequence*>> groups_;  // members in the order in which they joined
  int64_t members_ = 0;
};

}  // namespace longspan::engine
