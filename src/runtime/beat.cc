#include "runtime/beat.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "runtime/wire_frame.h"
#include "tensor/thread_pool.h"

namespace longspan::runtime {

using std::chrono::milliseconds;

Frame EncodeBeat(const Beat& beat) {
  base::ByteWriter writer = BeginFrame(FrameKind::kBeat);
  writer.Write(beat.epoch.value);
  writer.Write(beat.computing.value);
  writer.Write(beat.computing_ms);
  return writer.Take();
}

base::Result<Beat> DecodeBeat(std::span<const std::byte> frame) {
  LONGSPAN_ASSIGN_OR_RETURN(auto reader, OpenFrame(frame, FrameKind::kBeat));
  Beat beat;
  beat.epoch.value = reader.Read<uint32_t>();
  beat.computing.value = reader.Read<uint64_t>();
  beat.computing_ms = reader.Read<int64_t>();
  LONGSPAN_RETURN_IF_ERROR(reader.Finish());
  if (beat.computing_ms < 0)
    return base::DataLoss("a beat tells of {} ms of computing", beat.computing_ms);
  return beat;
}

Periodic::Periodic(milliseconds every, std::function<void()> turn)
    : every_(every), turn_(std::move(turn)), thread_([this] { Loop(); }) {}

Periodic::~Periodic() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Periodic::Loop() {
  // Started by a compute thread that may be pinned.
  tensor::UnpinThisThread();
  auto due = std::chrono::steady_clock::now() + every_;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_until(lock, due, [this] { return end_; })) {
    lock.unlock();
    turn_();
    due = std::max(due + every_, std::chrono::steady_clock::now());
    lock.lock();
  }
}

RankBeats::RankBeats(const RankConfig& config, comm::Channel& leader, const ComputeWatch& watch)
    : epoch_(config.epoch),
      every_(config.beat_every_ms),
      leader_(leader),
      watch_(watch),
      periodic_(every_, [this] { Turn(); }) {}

void RankBeats::Turn() {
  const plan::PlanNumber computing = watch_.computing();
  turns_ = computing.value != 0 && computing == last_ ? turns_ + 1 : 0;
  last_ = computing;
  // A leader that is gone shows to those who need it.
  (void)leader_.Send(EncodeBeat(
      {.epoch = epoch_, .computing = computing, .computing_ms = turns_ * every_.count()}));
}

base::Result<Frame> ReceiveFromLeader(comm::Channel& leader, const RankConfig& config) {
  const milliseconds turn(config.beat_every_ms);
  for (milliseconds silent(0); silent.count() < config.peer_timeout_ms;) {
    auto frame = leader.ReceiveFor(turn);
    if (frame.ok()) {
      const auto kind = KindOf(*frame);
      if (!kind.ok() || *kind != FrameKind::kBeat) return frame;
      silent = milliseconds(0);
    } else if (frame.status().code() == base::StatusCode::kDeadlineExceeded) {
      silent += turn;
    } else {
      return frame.status();
    }
  }
  return base::Unavailable("the leader has given no sign of life for {:.1f} s",
                           static_cast<double>(config.peer_timeout_ms) / 1000);
}

}  // namespace longspan::runtime
