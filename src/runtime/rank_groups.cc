#include "runtime/rank_groups.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/link_group.h"

namespace longspan::runtime {
namespace {

// Groups of one rank may share links; these tell their messages apart.
constexpr uint64_t kTensorTag = 1;
constexpr uint64_t kContextTag = 2;
constexpr uint64_t kExpertTag = 3;
constexpr uint64_t kExpertHostTag = 4;
// Those of groups on devices are so much higher.
constexpr uint64_t kDeviceTags = 8;

int64_t Now() { return base::SteadyClock().Now().count(); }

// The links to these lanes of the rank's stage, and which of them it is itself.
struct Peers {
  Peers(const std::vector<int>& lanes, const RankConfig& config, const RankLinks& all) {
    const int own = config.mesh.lane_of(config.rank);
    for (const int lane : lanes) {
      if (lane == own) rank = static_cast<int>(links.size());
      links.push_back(
          lane == own
              ? nullptr
              : all.stage_peers.at(static_cast<size_t>(lane < own ? lane : lane - 1)).get());
    }
  }

  std::vector<comm::Link*> links;
  int rank = 0;
};

// Null of one lane.
std::unique_ptr<comm::RankGroup> GroupOf(const std::vector<int>& lanes, const RankConfig& config,
                                         const RankLinks& links, uint64_t tag) {
  if (lanes.size() == 1) return nullptr;
  Peers peers(lanes, config, links);
  return comm::CreateLinkGroup(std::move(peers.links), peers.rank, tag);
}

// The same in the memory of the queue's device, of several lanes.
base::Result<std::unique_ptr<comm::RankGroup>> DeviceGroupOf(const std::vector<int>& lanes,
                                                             const RankConfig& config,
                                                             const RankLinks& links,
                                                             tensor::Queue& queue, uint64_t tag) {
  if (links.make_device_group == nullptr)
    return base::Unimplemented(
        "the backend '{}' runs stages of one rank only: use --tp-size 1 and --cp-size 1",
        config.backend);
  Peers peers(lanes, config, links);
  return links.make_device_group(queue, std::move(peers.links), peers.rank, tag + kDeviceTags);
}

// Blocks of so many elements that make up x, dense.
std::vector<std::span<std::byte>> Blocks(const tensor::View& x, std::span<const int64_t> counts) {
  std::vector<std::span<std::byte>> blocks;
  auto* next = static_cast<std::byte*>(x.raw());
  for (const int64_t count : counts) {
    const auto bytes = static_cast<size_t>(count * tensor::SizeOf(x.dtype()));
    blocks.emplace_back(next, bytes);
    next += bytes;
  }
  return blocks;
}

}  // namespace

RankGroups::RankGroups(const RankConfig& config, const RankLinks& links)
    : tensor_group_(
          GroupOf(spec::TensorLanes(config.mesh, config.rank), config, links, kTensorTag)),
      context_group_(
          GroupOf(spec::ContextLanes(config.mesh, config.rank), config, links, kContextTag)),
      expert_group_(
          GroupOf(spec::ExpertLanes(config.mesh, config.rank), config, links, kExpertTag)) {}

base::Status RankGroups::UseDevice(const RankConfig& config, const RankLinks& links,
                                   tensor::Queue& queue) {
  const std::vector<int> expert_lanes = spec::ExpertLanes(config.mesh, config.rank);
  expert_host_group_ = GroupOf(expert_lanes, config, links, kExpertHostTag);
  const auto replace = [&](std::unique_ptr<comm::RankGroup>& group, const std::vector<int>& lanes,
                           uint64_t tag) {
    if (group == nullptr) return base::OkStatus();
    auto on_device = DeviceGroupOf(lanes, config, links, queue, tag);
    if (!on_device.ok()) return on_device.status();
    group = std::move(*on_device);
    return base::OkStatus();
  };
  base::Status status =
      replace(tensor_group_, spec::TensorLanes(config.mesh, config.rank), kTensorTag);
  if (status.ok())
    status = replace(context_group_, spec::ContextLanes(config.mesh, config.rank), kContextTag);
  if (status.ok()) status = replace(expert_group_, expert_lanes, kExpertTag);
  return status;
}

bool RankGroups::repeatable() const {
  // What experts are told follows from the step's rows.
  const auto may = [](const auto& group) { return group == nullptr || group->repeatable(); };
  return expert_group_ == nullptr && may(tensor_group_) && may(context_group_);
}

void RankGroups::SumOverTensorRanks(const tensor::View& x) {
  if (tensor_group_ == nullptr || !status_.ok()) return;
  status_ = Wait(tensor_group_->AllReduce(x));
}

void RankGroups::ExchangeWithExperts(std::span<const std::span<const std::byte>> outgoing,
                                     std::span<const std::span<std::byte>> incoming) {
  if (status_.ok()) expert_exchange_ = expert_group_->AllToAll(outgoing, incoming);
}

void RankGroups::TellExperts(std::span<const std::span<const std::byte>> outgoing,
                             std::span<const std::span<std::byte>> incoming) {
  comm::RankGroup& group = expert_host_group_ ? *expert_host_group_ : *expert_group_;
  if (status_.ok()) expert_exchange_ = group.AllToAll(outgoing, incoming);
}

bool RankGroups::AwaitExperts() {
  // Also after another failure: its memory is the exchange's until then.
  base::Status status = Wait(std::move(expert_exchange_));
  if (status_.ok()) status_ = std::move(status);
  return status_.ok();
}

void RankGroups::StartGather(const tensor::View& x, std::span<const int64_t> counts) {
  if (context_group_ == nullptr || !status_.ok()) return;
  std::vector<size_t> sizes;
  for (const int64_t count : counts)
    sizes.push_back(static_cast<size_t>(count * tensor::SizeOf(x.dtype())));
  gathers_.push_back(context_group_->AllGather(
      {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.bytes())}, sizes));
}

void RankGroups::StartExchange(const tensor::View& x, std::span<const int64_t> outgoing,
                               const tensor::View& y, std::span<const int64_t> incoming) {
  if (context_group_ == nullptr || !status_.ok()) return;
  const std::vector<std::span<std::byte>> from = Blocks(x, outgoing);
  const std::vector<std::span<std::byte>> to = Blocks(y, incoming);
  const std::vector<std::span<const std::byte>> sent(from.begin(), from.end());
  gathers_.push_back(context_group_->AllToAll(sent, to));
}

void RankGroups::FinishGathers() {
  for (comm::Collective& gather : gathers_) {
    base::Status status = Wait(std::move(gather));
    if (status_.ok()) status_ = std::move(status);
  }
  gathers_.clear();
}

base::Status RankGroups::Wait(comm::Collective collective) {
  const ComputeWatch::Pause pause(watch_);
  const int64_t begin = Now();
  base::Status status = collective.Wait();
  waited_ += Now() - begin;
  if (!status.ok()) Close();
  return status;
}

void RankGroups::Close() {
  for (comm::RankGroup* group :
       {tensor_group(), context_group(), expert_group(), expert_host_group_.get()})
    if (group != nullptr) group->Close();
}

int64_t RankGroups::TakeWaited() { return std::exchange(waited_, 0); }

plan::AxisBytes RankGroups::TakeReceived() {
  const auto bytes_of = [](const std::unique_ptr<comm::RankGroup>& group) {
    return group == nullptr ? 0 : group->received_bytes();
  };
  const plan::AxisBytes all = {.tensor = bytes_of(tensor_group_),
                               .context = bytes_of(context_group_),
                               .expert = bytes_of(expert_group_) + bytes_of(expert_host_group_)};
  return all - std::exchange(told_, all);
}

}  // namespace longspan::runtime
