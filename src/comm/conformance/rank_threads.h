// Groups of ranks over a transport, one thread per rank, for the tests of collective operations.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "comm/conformance/transports.h"
#include "comm/link_group.h"

namespace longspan::comm {

// A link between every two of `size` ranks, and a group over them at each.
class RankThreads {
 public:
  // `wrap`, if given, may put something around the end that rank `from` has towards `to`.
  using Wrap = std::function<std::unique_ptr<Link>(int from, int to, std::unique_ptr<Link> end)>;

  RankThreads(const Transport& transport, int size, const Wrap& wrap = nullptr)
      : make_group_(transport.make_group), ends_(size) {
    for (auto& row : ends_) row.resize(static_cast<size_t>(size));
    for (int a = 0; a < size; ++a) {
      for (int b = a + 1; b < size; ++b) {
        LinkPair pair = transport.make_links();
        ends_[a][b] = wrap ? wrap(a, b, std::move(pair.first)) : std::move(pair.first);
        ends_[b][a] = wrap ? wrap(b, a, std::move(pair.second)) : std::move(pair.second);
      }
    }
    groups_ = MakeGroups(1);
  }

  RankGroup& group(int rank) { return *groups_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ends_.size()); }

  // Another group over the same links, by rank.
  std::vector<std::unique_ptr<RankGroup>> MakeGroups(uint64_t tag) const {
    std::vector<std::unique_ptr<RankGroup>> groups(ends_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ends_.size(); ++rank)
      threads.emplace_back([&, rank] { groups[rank] = MakeGroup(static_cast<int>(rank), tag); });
    for (std::thread& thread : threads) thread.join();
    return groups;
  }

  // As if the rank's process had died.
  void Die(int rank) {
    for (auto& end : ends_[static_cast<size_t>(rank)])
      if (end != nullptr) end->Close();
  }

  // Runs a function at every rank at once.
  void Run(const std::function<void(RankGroup& group)>& function) {
    std::vector<std::thread> threads;
    for (const auto& group : groups_) threads.emplace_back([&] { function(*group); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::unique_ptr<RankGroup> MakeGroup(int rank, uint64_t tag) const {
    std::vector<Link*> peers;
    for (const auto& end : ends_[static_cast<size_t>(rank)]) peers.push_back(end.get());
    return make_group_ ? make_group_(std::move(peers), rank, tag)
                       : CreateLinkGroup(std::move(peers), rank, tag);
  }

  decltype(Transport::make_group) make_group_;
  std::vector<std::vector<std::unique_ptr<Link>>> ends_;  // [from][to]
  std::vector<std::unique_ptr<RankGroup>> groups_;
};

}  // namespace longspan::comm
