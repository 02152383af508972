#include "tests/fuzz/frame_mutator.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace longspan::testing {

Bytes FrameMutator::Next() {
  Bytes frame = corpus_[Below(corpus_.size())];
  for (uint64_t changes = 1 + Below(3); changes > 0; --changes) Change(frame);
  return frame;
}

void FrameMutator::Change(Bytes& frame) {
  if (frame.empty()) return Extend(frame);
  const size_t at = Below(frame.size());
  switch (Below(9)) {
    case 0:
      frame[at] ^= std::byte(1 << Below(8));
      break;
    case 1:
      frame[at] = std::byte(Below(256));
      break;
    case 2:
      ChangeNumber<uint32_t>(frame);
      break;
    case 3:
      ChangeNumber<uint64_t>(frame);
      break;
    case 4:
      frame.resize(at);
      break;
    case 5:
      Splice(frame);
      break;
    case 6:
      DoublePart(frame);
      break;
    case 7:
      LeaveOutPart(frame);
      break;
    default:
      Extend(frame);
      break;
  }
}

template <typename T>
void FrameMutator::ChangeNumber(Bytes& frame) {
  if (frame.size() < sizeof(T)) return;
  std::byte* const place = frame.data() + Below(frame.size() - sizeof(T) + 1);
  T number = 0;
  std::memcpy(&number, place, sizeof(T));
  constexpr T kMost = std::numeric_limits<T>::max();
  const T values[] = {0,
                      1,
                      kMost,
                      kMost / 2,
                      kMost / 2 + 1,
                      static_cast<T>(number + 1),
                      static_cast<T>(number - 1),
                      static_cast<T>(~number),
                      static_cast<T>(frame.size()),
                      static_cast<T>(random_())};
  number = values[Below(std::size(values))];
  std::memcpy(place, &number, sizeof(T));
}

void FrameMutator::Splice(Bytes& frame) {
  const Bytes& other = corpus_[Below(corpus_.size())];
  const size_t cut = Below(frame.size() + 1);
  // Mostly where the other one has the same place: the fields fit then.
  const size_t from = Below(3) != 0 ? std::min(cut, other.size()) : Below(other.size() + 1);
  frame.resize(cut);
  frame.insert(frame.end(), other.begin() + static_cast<ptrdiff_t>(from), other.end());
}

void FrameMutator::DoublePart(Bytes& frame) {
  const size_t begin = Below(frame.size());
  const size_t end = begin + 1 + Below(std::min<size_t>(64, frame.size() - begin));
  const Bytes part(frame.begin() + static_cast<ptrdiff_t>(begin),
                   frame.begin() + static_cast<ptrdiff_t>(end));
  frame.insert(frame.begin() + static_cast<ptrdiff_t>(end), part.begin(), part.end());
}

void FrameMutator::LeaveOutPart(Bytes& frame) {
  const size_t begin = Below(frame.size());
  const size_t end = begin + 1 + Below(std::min<size_t>(64, frame.size() - begin));
  frame.erase(frame.begin() + static_cast<ptrdiff_t>(begin),
              frame.begin() + static_cast<ptrdiff_t>(end));
}

void FrameMutator::Extend(Bytes& frame) {
  for (uint64_t more = 1 + Below(32); more > 0; --more) frame.push_back(std::byte(Below(256)));
}

}  // namespace longspan::testing
