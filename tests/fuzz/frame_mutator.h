// Breaks frames in the ways in which they break: the same ones for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace longspan::testing {

using Bytes = std::vector<std::byte>;

class FrameMutator {
 public:
  // Frames are spoilt, cut and put together from those of the corpus; not empty, nor one of them.
  FrameMutator(uint64_t seed, std::vector<Bytes> corpus)
      : random_(seed), corpus_(std::move(corpus)) {}

  // One to three changes: bits, bytes, numbers of 32 and 64 bits (counts, lengths, versions,
  // epochs) that become extreme or nearly right, a part cut off, left out, doubled or made up, and
  // the beginning of one frame with the end of another.
  Bytes Next();

  uint64_t Below(uint64_t limit) { return random_() % limit; }

 private:
  void Change(Bytes& frame);
  template <typename T>
  void ChangeNumber(Bytes& frame);
  void Splice(Bytes& frame);
  void DoublePart(Bytes& frame);
  void LeaveOutPart(Bytes& frame);
  void Extend(Bytes& frame);

  std::mt19937_64 random_;
  const std::vector<Bytes> corpus_;
};

}  // namespace longspan::testing
